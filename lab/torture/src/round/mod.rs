//! A round: environment, load, faults, rest, check.

mod behind;
mod captured;
mod clock;
mod copied;
mod failover;
mod faults;
pub(crate) mod progress;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use posthaste_testkit::{PgVersion, eventually};
use serde::{Deserialize, Serialize};

use crate::bugs::Bug;
use crate::check::{self, Finding, Load, Verdict};
use crate::history::History;
use crate::history::log::Log;
use crate::load::{Producers, Settings};
use crate::plan::{Counts, Pace, Processes, RoundPlan};
use progress::Progress;
use stage::Stage;

/// The result of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Round {
    /// The full version of the server.
    pub server: String,
    /// The processes that carried its jobs.
    #[serde(default)]
    pub processes: Processes,
    /// Its load.
    #[serde(default)]
    pub pace: Pace,
    /// Whether it had hostile settings.
    #[serde(default)]
    pub hostile: bool,
    /// Whether its servers had separate clocks.
    #[serde(default)]
    pub clocked: bool,
    /// Whether the slots of its captures failed over.
    #[serde(default)]
    pub fails_over: bool,
    /// Its seed.
    pub seed: u64,
    /// Its duration in seconds.
    pub seconds: f64,
    /// The injected faults.
    pub faults: Counts,
    /// The counts.
    pub load: Load,
    /// How often each rule was checked.
    pub examined: std::collections::BTreeMap<check::Rule, u64>,
    /// Violations of rules.
    pub findings: Vec<Finding>,
    /// Events without a fault as cause: processes that ended unexpectedly or did not end.
    pub oddities: Vec<String>,
}

impl Round {
    /// Whether there are no findings and no oddities.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.oddities.is_empty()
    }
}

/// The folder and the program of a round.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The folder of its logs, which is emptied before.
    pub folder: PathBuf,
    /// The program of the workers, which is our own.
    pub program: PathBuf,
}

/// Runs a round, against a store or with processes that may be broken.
pub(crate) async fn play(
    environment: &Environment,
    plan: &RoundPlan,
    seed: u64,
    bug: Option<&Bug>,
) -> anyhow::Result<Round> {
    let started = Instant::now();
    let version = PgVersion::PROMISED
        .into_iter()
        .find(|version| version.name() == plan.server)
        .with_context(|| format!("no such server: {}", plan.server))?;
    empty(&environment.folder)?;
    let progress = Arc::new(Progress::default());
    let mut stage = Stage::set(version, plan, environment, bug, &progress).await?;
    let server = "SELECT split_part(current_setting('server_version'), ' ', 1)";
    let server: String = stage.client().await?.query_one(server, &[]).await?.get(0);
    let following = Arc::clone(&progress).follow(environment.folder.clone());
    let producers = Producers::start(&Settings {
        folder: environment.folder.clone(),
        seed,
        processes: plan.processes,
        pace: plan.pace,
        misbehavior: bug.and_then(|bug| bug.misbehavior),
        urls: stage.urls(),
        ahead: stage.clock.as_ref().map(clock::ServerClock::ahead),
        progress: Arc::clone(&progress),
    })?;
    let struck = strike_all(&mut stage, environment, plan, seed, &progress).await;
    producers.stop().await?;
    struck?;
    stage.rest().await?;
    following.abort();
    let end = stage.end().await?;
    stage.keep_captured(&environment.folder).await?;
    std::fs::write(
        environment.folder.join("end.json"),
        serde_json::to_vec(&end)?,
    )?;
    let history = History::read(&environment.folder)?;
    let mut faults = Counts::new();
    for fault in &history.faults {
        *faults.entry(fault.kind).or_default() += 1;
    }
    let Verdict {
        examined,
        findings,
        load,
    } = match (plan.processes, plan.pace) {
        (Processes::Workers, Pace::Busy) if plan.clocked => check::check_clocked(&history),
        (Processes::Workers, Pace::Busy) => check::check(&history),
        (Processes::Workers, Pace::Idle) => check::check_idle(&history),
        (Processes::Relays, _) => check::check_relays(&history),
    };
    Ok(Round {
        server,
        processes: plan.processes,
        pace: plan.pace,
        hostile: plan.hostile,
        clocked: plan.clocked,
        fails_over: plan.fails_over,
        seed,
        seconds: started.elapsed().as_secs_f64(),
        faults,
        load,
        examined,
        findings,
        oddities: std::mem::take(&mut stage.oddities),
    })
}

/// Injects the faults one after the other, each after some progress.
async fn strike_all(
    stage: &mut Stage,
    environment: &Environment,
    plan: &RoundPlan,
    seed: u64,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let log = Log::open(&environment.folder.join("faults.log"))?;
    let (first, patience) = match plan.pace {
        Pace::Busy => (100, 2_000),
        // Between two faults there is enough time for work that none of them excuses.
        Pace::Idle => (30, 20_000),
    };
    let patience = if plan.clocked { 500 } else { patience };
    further(progress, first, stage::SOON).await?;
    for kind in plan.order(seed) {
        log.append(&stage.strike(kind, &mut chance, progress).await?)?;
        stage.stay(kind).await?;
        // The next fault follows even without progress: faults overlap with recoveries.
        let bound = Duration::from_millis(chance.u64(200..patience));
        drop(further(progress, chance.u64(1..40), bound).await);
    }
    // The checker decides whether work continued after the last fault.
    drop(further(progress, plan.jobs, stage::SOON).await);
    stage.heed()
}

/// Waits until this many more jobs have ended.
async fn further(progress: &Progress, more: u64, within: Duration) -> anyhow::Result<()> {
    let enough = progress.ended() + more;
    eventually(within, "the workers are busy", async || {
        Ok(progress.ended() >= enough)
    })
    .await
}

fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(std::fs::create_dir_all(folder)?)
}
