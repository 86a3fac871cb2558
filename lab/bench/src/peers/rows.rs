//! The rows of the comparison: one run of a peer in each, and its figures.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep_until};

use super::adapter::{self, Adapter};
use super::ground::{Field, Ground, Meter};
use super::join::{Joined, join};
use super::options::Sizes;
use crate::pin::Pin;
use crate::rounds::Figures;
use crate::statistics::percentile;
use crate::taint::Watch;

/// A row of the comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Row {
    Single,
    Bulk,
    Drain,
    Slow,
    Fast,
    Pinned,
}

/// All rows, in the order of the tables.
pub(crate) const ROWS: [Row; 6] = [
    Row::Single,
    Row::Bulk,
    Row::Drain,
    Row::Slow,
    Row::Fast,
    Row::Pinned,
];

/// Time at the same rate before a measurement: sessions fill their caches of plans.
const WARM_UP_SECONDS: u64 = 3;

/// A rate of jobs.
#[derive(Debug, Clone, Copy)]
struct Pace {
    rate: u64,
    seconds: u64,
    per_transaction: u64,
    connections: u64,
}

impl Pace {
    fn slow(sizes: Sizes) -> Self {
        Self {
            rate: 50,
            seconds: sizes.seconds,
            per_transaction: 1,
            connections: 2,
        }
    }

    fn fast(seconds: u64) -> Self {
        Self {
            rate: 2_000,
            seconds,
            per_transaction: 5,
            connections: 4,
        }
    }

    /// Starts a producer that commits jobs at this rate.
    fn offer(self, field: &Field, seconds: u64, file: &Path) -> Result<Adapter> {
        let numbers = [self.rate, seconds, self.per_transaction, self.connections];
        let numbers = numbers.map(|number| number.to_string());
        let [rate, seconds, per_transaction, connections] = &numbers;
        let file = file.to_string_lossy();
        let words = ["offer", rate, seconds, per_transaction, connections, &file];
        Adapter::start(field.peer, &field.database, &words)
    }
}

impl Row {
    /// The name of its section in a report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "peers-single",
            Self::Bulk => "peers-bulk",
            Self::Drain => "peers-drain",
            Self::Slow => "peers-50",
            Self::Fast => "peers-2000",
            Self::Pinned => "peers-pinned",
        }
    }

    /// Runs the row once in a new database.
    pub(crate) async fn play(
        self,
        ground: &Ground<'_>,
        field: &Field,
        sizes: Sizes,
    ) -> Result<Figures> {
        match self {
            Self::Single => single(ground, field, sizes).await,
            Self::Bulk => bulk(ground, field, sizes).await,
            Self::Drain => drain(ground, field, sizes).await,
            Self::Slow => paced(ground, field, Pace::slow(sizes)).await,
            Self::Fast => paced(ground, field, Pace::fast(sizes.seconds)).await,
            Self::Pinned => pinned(ground, field, sizes).await,
        }
    }
}

async fn single(ground: &Ground<'_>, field: &Field, sizes: Sizes) -> Result<Figures> {
    let seconds = sizes.seconds.to_string();
    insert(ground, field, &["single", "8", &seconds]).await
}

async fn bulk(ground: &Ground<'_>, field: &Field, sizes: Sizes) -> Result<Figures> {
    let rows = sizes.rows / field.peer.smaller;
    insert(ground, field, &["bulk", &rows.to_string()]).await
}

async fn insert(ground: &Ground<'_>, field: &Field, words: &[&str]) -> Result<Figures> {
    let mut adapter = Adapter::start(field.peer, &field.database, words)?;
    let (begun, _) = adapter.hear("begin").await?;
    let started = adapter.processor_seconds()?;
    let (watch, before) = (Watch::begin()?, ground.meter().await?);
    let (ended, jobs) = adapter.hear("end").await?;
    let after = ground.meter().await?;
    let processor = watch.finish()?;
    let jobs: f64 = jobs.parse().context("the number of jobs")?;
    let used = adapter.processor_seconds()? - started;
    adapter.finish().await?;
    let remaining = field.remaining().await?;
    ensure!(
        remaining as f64 == jobs,
        "{remaining} of {jobs} jobs are there"
    );
    let rate = jobs / (ended - begun).as_secs_f64();
    let figures = Figures::measured_under(processor).with("jobs_per_second", rate);
    Ok(with_costs(figures, after.since(before), used, jobs))
}

async fn drain(ground: &Ground<'_>, field: &Field, sizes: Sizes) -> Result<Figures> {
    let backlog = sizes.backlog / field.peer.smaller;
    adapter::fill(field.peer, &field.database, backlog).await?;
    field.analyze().await?;
    let (watch, before) = (Watch::begin()?, ground.meter().await?);
    let words = ["drain", &backlog.to_string()];
    let mut adapter = Adapter::start(field.peer, &field.database, &words)?;
    let (begun, _) = adapter.hear("begin").await?;
    let (reached, _) = adapter.hear("reached").await?;
    let (ended, jobs) = adapter.hear("end").await?;
    let after = ground.meter().await?;
    let processor = watch.finish()?;
    let used = adapter.processor_seconds()?;
    adapter.finish().await?;
    field.ensure_empty().await?;
    let worked: f64 = jobs.parse().context("the number of jobs")?;
    let jobs = backlog as f64;
    // The shutdown of a worker may wait for something other than work, such as its next poll.
    let figures = Figures::measured_under(processor)
        .with("jobs_per_second", jobs / (reached - begun).as_secs_f64())
        .with("seconds_to_end", (ended - reached).as_secs_f64())
        .with("worked_twice", worked - jobs);
    Ok(with_costs(figures, after.since(before), used, jobs))
}

async fn paced(ground: &Ground<'_>, field: &Field, pace: Pace) -> Result<Figures> {
    let watch = Watch::begin()?;
    let run = run(ground, field, pace).await?;
    let figures = with_waits(Figures::measured_under(watch.finish()?), &run.joined, pace);
    let jobs = run.joined.waited_ms.len() as f64;
    Ok(
        with_costs(figures, run.cost, run.used, jobs)
            .with("blocks_per_job", run.cost.blocks / jobs),
    )
}

/// Runs the same load under a transaction that keeps its snapshot, and evaluates it in thirds.
async fn pinned(ground: &Ground<'_>, field: &Field, sizes: Sizes) -> Result<Figures> {
    let (watch, pin) = (Watch::begin()?, Pin::snapshot(&field.database).await?);
    let pace = Pace::fast(sizes.pinned_seconds);
    let run = run(ground, field, pace).await?;
    pin.release().await?;
    let waited = &run.joined.waited_ms;
    let third = waited.len() / 3;
    let (first, last) = (&waited[..third], &waited[waited.len() - third..]);
    let jobs = waited.len() as f64;
    let per_third = jobs / 3.0;
    let figures = with_waits(Figures::measured_under(watch.finish()?), &run.joined, pace)
        .with("first_p50_ms", percentile(first, 0.5))
        .with("last_p50_ms", percentile(last, 0.5))
        .with("last_p99_ms", percentile(last, 0.99))
        .with("first_blocks_per_job", run.thirds[0].blocks / per_third)
        .with("last_blocks_per_job", run.thirds[1].blocks / per_third);
    Ok(with_costs(figures, run.cost, run.used, jobs))
}

/// The result of a worker under a steady load.
struct Run {
    joined: Joined,
    cost: Meter,
    /// The cost of the first and the last third.
    thirds: [Meter; 2],
    /// CPU seconds of the worker.
    used: f64,
}

async fn run(ground: &Ground<'_>, field: &Field, pace: Pace) -> Result<Run> {
    let folder = TempDir::new()?;
    let path = |name| folder.path().join(name);
    let (worked, offered) = (path("worked"), path("offered"));
    let start_commits = ground.meter().await?.commits;
    let words = ["work", &worked.to_string_lossy()];
    let mut worker = Adapter::start(field.peer, &field.database, &words)?;
    worker.hear("ready").await?;
    let mut warm_up = pace.offer(field, WARM_UP_SECONDS, &path("warm-up"))?;
    warm_up.hear("end").await?;
    warm_up.finish().await?;
    field.is_empty().await?;
    let idle = worker.processor_seconds()?;
    let before = ground.meter().await?;
    let begun = Instant::now();
    let mut producer = pace.offer(field, pace.seconds, &offered)?;
    let part = Duration::from_secs_f64(pace.seconds as f64 / 3.0);
    sleep_until(begun + part).await;
    let first = ground.meter().await?;
    sleep_until(begun + part * 2).await;
    let second = ground.meter().await?;
    producer.hear("end").await?;
    let third = ground.meter().await?;
    producer.finish().await?;
    field.is_empty().await?;
    let mut cost = ground.meter().await?.since(before);
    let used = worker.processor_seconds()? - idle;
    worker.end();
    worker.finish().await?;
    // Sessions report their transactions late, but no later than at their end. So those of the
    // warm-up are included, as its part of the time.
    let share = pace.seconds as f64 / (pace.seconds + WARM_UP_SECONDS) as f64;
    cost.commits = (ground.meter().await?.commits - start_commits) * share;
    Ok(Run {
        joined: join(&fs::read_to_string(offered)?, &fs::read_to_string(worked)?)?,
        cost,
        thirds: [first.since(before), third.since(second)],
        used,
    })
}

fn with_waits(figures: Figures, joined: &Joined, pace: Pace) -> Figures {
    let wanted = (pace.rate * pace.seconds) as f64;
    figures
        .with("start_p50_ms", percentile(&joined.waited_ms, 0.5))
        .with("start_p99_ms", percentile(&joined.waited_ms, 0.99))
        .with(
            "offered_percent",
            joined.waited_ms.len() as f64 / wanted * 100.0,
        )
        .with("lost", joined.lost as f64)
        .with("worked_twice", joined.surplus as f64)
}

fn with_costs(figures: Figures, cost: Meter, used: f64, jobs: f64) -> Figures {
    figures
        .with("server_us_per_job", cost.seconds * 1e6 / jobs)
        .with("process_us_per_job", used * 1e6 / jobs)
        .with("wal_bytes_per_job", cost.wal_bytes / jobs)
        .with("statements_per_job", cost.statements / jobs)
        .with("commits_per_job", cost.commits / jobs)
}
