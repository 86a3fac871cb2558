//! Runs one algorithm through the scenario, in a new database.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use posthaste_testkit::PgServer;
use posthaste_testkit::receivers::Redis;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::algorithm::{Algorithm, Manner};
use super::crew::Crew;
use super::drain;
use super::holder::Holder;
use super::instruments;
use super::ledger::{Ledger, Totals};
use super::parameters::{Prepared, Values};
use super::producer;
use super::sample::{PERIOD, Sample, Sampler};
use super::scenario::{Hold, Scenario};
use super::scene::Scene;
use crate::clock::Clock;
use crate::contestants::posthaste;
use crate::database::Database;

/// The time after which a job of a dead worker may be claimed again.
const LEASE: Duration = Duration::from_secs(30);

/// The limit for workers to finish their jobs at the end.
const FAREWELL: Duration = Duration::from_secs(10);

/// The number of jobs that one transaction schedules.
const SCHEDULED_AT_ONCE: i64 = 100_000;

/// The result of one algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) algorithm: String,
    pub(crate) holds: Vec<Held>,
    /// The error that ended the run early.
    pub(crate) failure: Option<String>,
    /// The number of jobs that are neither finished nor in the queue.
    pub(crate) lost: u64,
    #[serde(skip)]
    pub(crate) samples: Vec<Sample>,
}

/// A hold of the horizon, in seconds of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) kind: String,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// The reason why it is not proved that it held all the time.
    pub(crate) let_go: Option<String>,
}

/// Runs the scenario; an error becomes a part of the outcome. Samples are sent to `lines` as they
/// are taken.
pub(crate) async fn play(
    server: &PgServer,
    scenario: &Scenario,
    algorithm: &Algorithm,
    lines: &mut impl Write,
    mut show: impl FnMut(&Sample) -> Result<()>,
) -> Outcome {
    let mut outcome = Outcome {
        algorithm: algorithm.name.clone(),
        holds: Vec::new(),
        failure: None,
        lost: 0,
        samples: Vec::new(),
    };
    let played = attempt(server, scenario, algorithm, &mut outcome, |sample| {
        serde_json::to_writer(&mut *lines, sample)?;
        lines.write_all(b"\n")?;
        show(sample)
    });
    if let Err(error) = played.await {
        outcome.failure = Some(format!("{error:#}"));
    }
    outcome
}

async fn attempt(
    server: &PgServer,
    scenario: &Scenario,
    algorithm: &Algorithm,
    outcome: &mut Outcome,
    mut note: impl FnMut(&Sample) -> Result<()>,
) -> Result<()> {
    let database = prepare(server, algorithm).await?;
    schedule(&database, algorithm, scenario.produce.scheduled).await?;
    let clock = Clock::start();
    let ledger = Arc::new(Ledger::new(clock));
    let (stop, going) = watch::channel(true);
    let redis = redis(algorithm)?;
    let url = redis.as_ref().map(Redis::url);
    let scene = Scene {
        database: &database,
        algorithm,
        scenario,
        lease: LEASE,
        redis: url.as_deref(),
        ledger: Arc::clone(&ledger),
        going,
    };
    let mut tasks = JoinSet::new();
    let crew = Crew::start(&scene, 1, &mut tasks).await?;
    let mut sampler = Sampler::begin(server, &database, algorithm, &ledger).await?;
    producer::start(&scene, &mut tasks).await?;
    let begun = Instant::now();
    let holds: Vec<_> = scenario
        .hold
        .iter()
        .map(|hold| (*hold, scenario.real(hold.at), scenario.real(hold.lasts)))
        .collect();
    let sampling = async {
        let mut pace = interval(PERIOD);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while begun.elapsed() < scenario.lasts() {
            pace.tick().await;
            if let Some(ended) = tasks.try_join_next() {
                ended?.context("a worker or a producer has ended")?;
                bail!("a worker or a producer has ended");
            }
            let sample = sampler.take(begun.elapsed()).await?;
            note(&sample)?;
            outcome.samples.push(sample);
        }
        anyhow::Ok(())
    };
    let holding = futures_util::future::join_all(
        holds
            .iter()
            .map(|(hold, at, lasts)| hold_for(server, &scene, hold, begun, *at, *lasts)),
    );
    let (sampled, held) = tokio::join!(sampling, holding);
    outcome.holds = held;
    sampled?;
    let _ = stop.send(false);
    finish(tasks, crew).await?;
    outcome.lost = lost(&scene, ledger.totals()).await?;
    Ok(())
}

/// Creates an empty database with the algorithm's tables.
pub(crate) async fn prepare(server: &PgServer, algorithm: &Algorithm) -> Result<Database> {
    let database = Database::fresh(server).await?;
    let client = database.connect().await?;
    client.batch_execute(instruments().get("prepare")?).await?;
    if algorithm.manner == Manner::Library {
        posthaste::prepare(&database).await?;
    } else {
        let schema = algorithm.statements.get("schema")?;
        client
            .batch_execute(schema)
            .await
            .with_context(|| format!("the schema of {}", algorithm.name))?;
    }
    Ok(database)
}

/// Adds jobs that are due in a year.
pub(crate) async fn schedule(database: &Database, algorithm: &Algorithm, jobs: i64) -> Result<()> {
    if jobs == 0 {
        return Ok(());
    }
    let statement = algorithm.statements.get("schedule")?;
    let client = database.connect().await?;
    let insert = Prepared::new(&client, "schedule", statement).await?;
    let mut scheduled = 0;
    while scheduled < jobs {
        let values = Values::new((jobs - scheduled).min(SCHEDULED_AT_ONCE), 0.0);
        insert.query(&client, &values).await?;
        scheduled += values.limit;
    }
    client.batch_execute("VACUUM ANALYZE").await?;
    Ok(())
}

/// Starts a Redis if the algorithm drains to one.
pub(crate) fn redis(algorithm: &Algorithm) -> Result<Option<Redis>> {
    let drains = algorithm.manner == Manner::Drain;
    drains.then(|| Redis::start(&[])).transpose()
}

async fn hold_for(
    server: &PgServer,
    scene: &Scene<'_>,
    hold: &Hold,
    begun: Instant,
    at: Duration,
    lasts: Duration,
) -> Held {
    sleep_until(begun + at).await;
    let mut held = Held {
        kind: format!("{:?}", hold.kind).to_lowercase(),
        from_s: begun.elapsed().as_secs_f64(),
        to_s: (at + lasts).as_secs_f64(),
        let_go: None,
    };
    let holding = async {
        let holder = Holder::take(hold, server, scene.database, scene.algorithm).await?;
        held.from_s = begun.elapsed().as_secs_f64();
        // A bulk needs some time to insert all its jobs.
        tokio::time::sleep(lasts).await;
        holder.release().await
    };
    if let Err(error) = holding.await {
        held.let_go = Some(format!("{error:#}"));
    }
    held.to_s = begun.elapsed().as_secs_f64();
    held
}

/// Waits for the workers to end, and returns the error of one.
pub(crate) async fn finish(mut tasks: JoinSet<Result<()>>, crew: Crew) -> Result<()> {
    let deadline = Instant::now() + FAREWELL;
    while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, tasks.join_next()).await {
        match ended {
            Err(error) if error.is_cancelled() => {}
            ended => ended??,
        }
    }
    crew.stop().await
}

/// The number of jobs that no worker has finished and that are not in the queue.
pub(crate) async fn lost(scene: &Scene<'_>, totals: Totals) -> Result<u64> {
    let Ok(remaining) = scene.algorithm.statements.get("remaining") else {
        return Ok(0);
    };
    let client = scene.database.connect().await?;
    let remaining: i64 = client.query_one(remaining, &[]).await?.get(0);
    let elsewhere = match scene.redis {
        Some(_) => drain::remaining(scene).await?,
        None => 0,
    };
    let remaining = u64::try_from(remaining)? + elsewhere;
    Ok(totals.waiting().saturating_sub(remaining))
}
