//! The drain while a REPEATABLE READ transaction holds the xmin horizon.

use anyhow::Result;

use super::drain::{drain_posthaste, drain_rival};
use crate::bench::Bench;
use crate::contestants::posthaste::{self, Manner};
use crate::contestants::rival::Rival;
use crate::database::Database;
use crate::gauge::Gauge;
use crate::pin::Pin;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::verdict::{Bound, Evidence, Requirement};

const FREE: &str = "posthaste, free";
const PINNED: &str = "posthaste, pinned";
const RATE: &str = "jobs_per_second";

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (jobs, rounds) = (bench.plan.drain_jobs, bench.plan.rounds);
    bar.parameter("jobs", jobs);
    let rivals = [
        Rival::update_shape().at(1_000),
        Rival::skip_locked().at(1_000),
    ];
    let labels = rivals
        .clone()
        .map(|entry| format!("{}, pinned", entry.label));
    let names: Vec<&str> = [FREE, PINNED]
        .into_iter()
        .chain(labels.iter().map(String::as_str))
        .collect();
    play(&names, rounds, &mut bar.runs, async |index| {
        let database = Database::fresh(bench.server).await?;
        match index {
            0 => drain_posthaste(&database, jobs, Manner::fast()).await,
            1 => drain_pinned(&database, jobs).await,
            _ => {
                let pin = Pin::snapshot(&database).await?;
                let figures = drain_rival(&database, jobs, &rivals[index - 2]).await?;
                pin.release().await?;
                Ok(figures)
            }
        }
    })
    .await?;
    judge(bar, rounds)
}

async fn drain_pinned(database: &Database, jobs: u64) -> Result<Figures> {
    posthaste::prepare(database).await?;
    posthaste::preload(database, jobs).await?;
    let pin = Pin::snapshot(database).await?;
    let gauge = Gauge::begin(database).await?;
    let drained = posthaste::drain(database, jobs, Manner::fast()).await?;
    let figures = gauge.finish(jobs, drained.taken).await?;
    let tuples = posthaste::hot_tuples(&database.connect().await?).await?;
    pin.release().await?;
    posthaste::ensure_nothing_remains(database).await?;
    Ok(figures
        .with("dead_tuples", tuples.dead as f64)
        .with("updated_or_deleted_tuples", tuples.changed as f64))
}

fn judge(bar: &mut Bar, rounds: u32) -> Result<()> {
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let rate = Requirement::bar("share of the free drain", "x", Bound::AtLeast(0.95));
    let dead = Requirement::bar(
        "dead tuples in the hot tables",
        "tuples",
        Bound::AtMost(0.0),
    );
    let changed = Requirement::bar(
        "tuples updated or deleted in the hot tables",
        "tuples",
        Bound::AtMost(0.0),
    );
    bar.judgements = vec![
        evidence.ratio(rate, PINNED, FREE, RATE)?,
        evidence.highest(dead, PINNED, "dead_tuples")?,
        evidence.highest(changed, PINNED, "updated_or_deleted_tuples")?,
    ];
    Ok(())
}
