//! A backlog worked to its end, full lifecycle, no-op handler.
//!
//! posthaste runs through its library, including tasks, time limits and panic isolation. The rivals
//! are their bare statements in a loop, which is in their favour.

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::contestants::CONNECTIONS;
use crate::contestants::posthaste::{self, Manner};
use crate::contestants::rival::{Entry, Rival, entries};
use crate::database::Database;
use crate::gauge::Gauge;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const RATE: &str = "jobs_per_second";

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (jobs, rounds) = (bench.plan.drain_jobs, bench.plan.rounds);
    bar.parameter("jobs", jobs);
    bar.parameter("connections", CONNECTIONS);
    let entries = entries();
    let mut names = vec![OURS];
    names.extend(entries.iter().map(|entry| entry.label.as_str()));
    play(&names, rounds, &mut bar.runs, async |index| {
        let database = Database::fresh(bench.server).await?;
        match index.checked_sub(1) {
            None => drain_posthaste(&database, jobs, Manner::fast()).await,
            Some(place) => {
                drain_rival(
                    &database,
                    jobs,
                    entries.get(place).context("no such rival")?,
                )
                .await
            }
        }
    })
    .await?;
    judge(bar, &entries, rounds)
}

/// Preloads a backlog and drains it through the library.
pub(super) async fn drain_posthaste(
    database: &Database,
    jobs: u64,
    manner: Manner,
) -> Result<Figures> {
    posthaste::prepare(database).await?;
    posthaste::preload(database, jobs).await?;
    drain_preloaded(database, jobs, manner).await
}

/// Drains an existing backlog through the library.
pub(super) async fn drain_preloaded(
    database: &Database,
    jobs: u64,
    manner: Manner,
) -> Result<Figures> {
    let gauge = Gauge::begin(database).await?;
    let drained = posthaste::drain(database, jobs, manner).await?;
    let figures = gauge.finish(jobs, drained.taken).await?;
    posthaste::ensure_nothing_remains(database).await?;
    Ok(figures.with("stopping_ms", drained.stopping.as_secs_f64() * 1_000.0))
}

/// Preloads a backlog and drains it with a rival's statements.
pub(super) async fn drain_rival(database: &Database, jobs: u64, entry: &Entry) -> Result<Figures> {
    entry.rival.preload(database, jobs).await?;
    let gauge = Gauge::begin(database).await?;
    let taken = entry.rival.drain(database, jobs, entry.batch).await?;
    let figures = gauge.finish(jobs, taken).await?;
    entry.rival.ensure_nothing_remains(database).await?;
    Ok(figures)
}

fn judge(bar: &mut Bar, entries: &[Entry], rounds: u32) -> Result<()> {
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let best = |rival: Rival| {
        let theirs: Vec<&str> = entries
            .iter()
            .filter(|entry| entry.rival.name() == rival.name())
            .map(|entry| entry.label.as_str())
            .collect();
        evidence.best(&theirs, RATE)
    };
    let update_shape = Requirement::bar(
        "times the update shape at its best batch",
        "x",
        Bound::AtLeast(5.0),
    );
    let skip_locked = Requirement::bar(
        "times SKIP LOCKED with DELETE at its best batch",
        "x",
        Bound::AtLeast(2.0),
    );
    let rate = Requirement::aim(
        "rate through the library",
        "jobs/s",
        Bound::AtLeast(150_000.0),
    );
    bar.judgements = vec![
        evidence.ratio(update_shape, OURS, best(Rival::update_shape())?, RATE)?,
        evidence.ratio(skip_locked, OURS, best(Rival::skip_locked())?, RATE)?,
        evidence.median(rate, OURS, RATE)?,
    ];
    Ok(())
}
