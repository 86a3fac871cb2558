//! The time from commit to start at a low rate: with notifications, and with polling.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::bench::Bench;
use crate::clock::{Clock, Sightings};
use crate::contestants::JOB_NAME;
use crate::contestants::bare::Bare;
use crate::contestants::graphile::{self, Graphile};
use crate::contestants::posthaste::{self, Crew, Manner, Producer};
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const POLLING: &str = "posthaste, by polling";
const GRAPHILE: &str = "graphile-worker";
const JOBS_PER_SECOND: u64 = 50;
const LONGEST: Duration = Duration::from_secs(30);

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (seconds, rounds) = (bench.plan.latency_seconds, bench.plan.rounds);
    bar.parameter("jobs per second", JOBS_PER_SECOND);
    bar.parameter("seconds", seconds);
    let has_rival = graphile::packages().is_some();
    if !has_rival {
        let note = "graphile-worker was not installed (scripts/setup.sh bench).";
        bar.notes.push(note.to_owned());
    }
    let mut contestants = vec![OURS, POLLING];
    contestants.extend(has_rival.then_some(GRAPHILE));
    play(&contestants, rounds, &mut bar.runs, async |index| {
        let contestant = contestants.get(index).context("no such contestant")?;
        trickle(bench, contestant, seconds).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let p50 = Requirement::bar("commit to start, p50", "commits", Bound::AtMost(5.0));
    let p99 = Requirement::bar("commit to start, p99", "commits", Bound::AtMost(15.0));
    let polling = Requirement::bar("commit to start, p50, by polling", "ms", Bound::AtMost(5.0));
    bar.judgements = vec![
        evidence.median(p50, OURS, "start_p50_commits")?,
        evidence.median(p99, OURS, "start_p99_commits")?,
        evidence.median(polling, POLLING, "start_p50_ms")?,
    ];
    if has_rival {
        for (text, figure) in [
            (
                "commit to start, p50, times graphile-worker's",
                "start_p50_ms",
            ),
            (
                "commit to start, p99, times graphile-worker's",
                "start_p99_ms",
            ),
        ] {
            let first = Requirement::aim(text, "×", Bound::AtMost(1.0));
            let judged = evidence.ratio(first, OURS, GRAPHILE, figure)?;
            bar.judgements.push(judged);
        }
    }
    Ok(())
}

/// A worker that starts the jobs, and a session that enqueues them.
enum Starter {
    Ours(Crew, Producer),
    Graphile(Graphile),
}

impl Starter {
    async fn start(
        contestant: &str,
        database: &Database,
        started: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<Self> {
        let manner = match contestant {
            GRAPHILE => return Ok(Self::Graphile(Graphile::start(database, started).await?)),
            POLLING => Manner::fast().without_notify(),
            _ => Manner::fast(),
        };
        let crew = Crew::start(database, manner, started).await?;
        Ok(Self::Ours(crew, Producer::connect(database).await?))
    }

    async fn enqueue(&self, number: u64) -> Result<()> {
        match self {
            Self::Ours(_, producer) => producer.enqueue(number).await,
            Self::Graphile(graphile) => graphile.enqueue(number).await,
        }
    }

    async fn reach(&self, jobs: u64) -> Result<()> {
        match self {
            Self::Ours(crew, _) => crew.reach(jobs, LONGEST).await.map(drop),
            Self::Graphile(graphile) => graphile.reach(jobs, LONGEST).await,
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Self::Ours(crew, _) => crew.stop().await,
            Self::Graphile(graphile) => graphile.stop().await,
        }
    }
}

async fn trickle(bench: &Bench<'_>, contestant: &str, seconds: u64) -> Result<Figures> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let bare = Bare::new();
    bare.prepare(&database).await?;
    let bystander = database.connect().await?;
    let row = bystander.prepare(bare.enqueue_statement()?).await?;
    let clock = Clock::start();
    let (committed, started) = (Sightings::default(), Sightings::default());
    let seen = started.clone();
    let started_at = move |number| seen.note(number, clock.now());
    let starter = Starter::start(contestant, &database, started_at).await?;
    // When the first job comes, the worker does not know its lane yet.
    starter.enqueue(0).await?;
    starter.reach(1).await?;

    let watch = Watch::begin()?;
    let mut pace = interval(Duration::from_millis(500 / JOBS_PER_SECOND));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let jobs = JOBS_PER_SECOND * seconds;
    let mut commits = Vec::new();
    for number in 1..=jobs {
        pace.tick().await;
        starter.enqueue(number).await?;
        committed.note(number, clock.now());
        pace.tick().await;
        let begun = Instant::now();
        let arguments = json!({ "n": number });
        bystander.execute(&row, &[&JOB_NAME, &arguments]).await?;
        commits.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    starter.reach(jobs + 1).await?;
    let processor = watch.finish()?;
    starter.stop().await?;
    let starts = started.milliseconds_since(&committed);
    let commit = percentile(&commits, 0.5);
    let (p50, p99) = (percentile(&starts, 0.5), percentile(&starts, 0.99));
    Ok(Figures::measured_under(processor)
        .with("commit_p50_ms", commit)
        .with("start_p50_ms", p50)
        .with("start_p99_ms", p99)
        .with("start_p50_commits", p50 / commit)
        .with("start_p99_commits", p99 / commit)
        .with("start_slowest_ms", percentile(&starts, 1.0)))
}
