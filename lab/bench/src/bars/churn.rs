//! A steady load after many spent jobs: free, pinned by a transaction, and during a real `pg_dump`.
//!
//! The pin is taken before the spent jobs are worked, so that none of their rows can be cleaned up.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::claims::{Claim, LogMark, by_time, milliseconds};
use crate::clock::{Clock, Sightings};
use crate::contestants::posthaste::{self, Crew, Manner};
use crate::database::Database;
use crate::load::Load;
use crate::pin::Pin;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const FREE: &str = "free";
const PINNED: &str = "pinned";
const DUMPED: &str = "beside pg_dump";

/// The number of equal periods in which the run is evaluated.
const SPANS: usize = 5;

/// The size of a segment: smaller than the library's default, so that segments rotate under the
/// load within one run.
const SEGMENT_MEBIBYTES: i64 = 12;

/// The limit for starting the few jobs that are in flight when the load ends.
const REST: Duration = Duration::from_secs(30);

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let plan = &bench.plan;
    bar.parameter("spent jobs", plan.spent_jobs);
    bar.parameter("jobs per second", plan.churn_rate);
    bar.parameter("seconds", plan.churn_seconds);
    bar.parameter("MiB per segment", SEGMENT_MEBIBYTES);
    let rounds = plan.rounds;
    play(
        &[FREE, PINNED, DUMPED],
        rounds,
        &mut bar.runs,
        async |index| churn(bench, index).await,
    )
    .await?;
    judge(bar, rounds)
}

async fn churn(bench: &Bench<'_>, index: usize) -> Result<Figures> {
    let plan = &bench.plan;
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    posthaste::preload(&database, plan.spent_jobs).await?;
    let pin = match index {
        0 => None,
        1 => Some(Pin::snapshot(&database).await?),
        _ => Some(Pin::dump(bench.server, &database, posthaste::SCHEMA).await?),
    };
    let observer = database.connect().await?;
    let first = posthaste::segments(&observer).await?;

    let clock = Clock::start();
    let started = Sightings::default();
    let sightings = started.clone();
    let crew = Crew::start(
        &database,
        Manner::fast().segments_of(SEGMENT_MEBIBYTES).logged(),
        move |begun| sightings.note(begun, clock.now()),
    )
    .await?;
    crew.reach(plan.spent_jobs, Duration::from_secs(600))
        .await?;

    let spent = started.all().len();
    let loaded = posthaste::segments(&observer).await?;
    let mark = LogMark::here(&bench.server.log_file())?;
    let watch = Watch::begin()?;
    let offered = Load::churn(plan.churn_rate)
        .offer(&database, clock, plan.churn_seconds)
        .await?;
    let processor = watch.finish()?;
    crew.reach(plan.spent_jobs + offered, REST).await?;
    crew.stop().await?;

    let last = posthaste::segments(&observer).await?;
    let tuples = posthaste::hot_tuples(&observer).await?;
    if let Some(pin) = pin {
        pin.release().await?;
        ensure!(
            plan.quick || last.0 > loaded.0,
            "no segment was rotated under the load while the pin was held"
        );
    }
    let waited: Vec<f64> = started
        .all()
        .iter()
        .skip(spent)
        .map(|(begun, at)| at.saturating_sub(*begun) as f64 / 1_000.0)
        .collect();
    Ok(figures(&mark, Figures::measured_under(processor), &waited)?
        .with(
            "jobs_per_second",
            offered as f64 / plan.churn_seconds as f64,
        )
        .with("rotations", (last.0 - first.0) as f64)
        .with("rotations_under_load", (last.0 - loaded.0) as f64)
        .with("truncations", (last.1 - first.1) as f64)
        .with("dead_tuples", tuples.dead as f64)
        .with("updated_or_deleted_tuples", tuples.changed as f64))
}

fn figures(mark: &LogMark, figures: Figures, waited: &[f64]) -> Result<Figures> {
    let (claims, empty): (Vec<Claim>, Vec<Claim>) = mark
        .claims_since()?
        .into_iter()
        .partition(|claim| claim.found);
    let (all, empty) = (milliseconds(&claims), milliseconds(&empty));
    ensure!(
        all.len() >= 100,
        "only {} claims that found jobs are in the server's log",
        all.len()
    );
    let spans = by_time(&claims, SPANS);
    let medians: Vec<f64> = spans.iter().map(|span| percentile(span, 0.5)).collect();
    let tails: Vec<f64> = spans.iter().map(|span| percentile(span, 0.99)).collect();
    let drift = |spans: &[f64]| Some(spans.last()? / spans.first()?);
    Ok(figures
        .with("claims", all.len() as f64)
        .with("empty_looks", empty.len() as f64)
        .with("empty_look_p99_ms", percentile(&empty, 0.99))
        .with("claim_p50_ms", percentile(&all, 0.5))
        .with("claim_p99_ms", percentile(&all, 0.99))
        .with("claim_p50_drift", drift(&medians).context("no spans")?)
        .with("claim_p99_drift", drift(&tails).context("no spans")?)
        .with("enqueue_to_start_p50_ms", percentile(waited, 0.5))
        .with("enqueue_to_start_p99_ms", percentile(waited, 0.99))
        .with_series("claim_p50_ms", medians)
        .with_series("claim_p99_ms", tails))
}

fn judge(bar: &mut Bar, rounds: u32) -> Result<()> {
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let mut judgements = Vec::new();
    for (contestant, text) in [
        (PINNED, "claim p99 under a pin, times the free one"),
        (DUMPED, "claim p99 beside pg_dump, times the free one"),
    ] {
        let tail = Requirement::bar(text, "x", Bound::AtMost(2.0));
        judgements.push(evidence.ratio(tail, contestant, FREE, "claim_p99_ms")?);
    }
    for (contestant, median, tail) in [
        (
            PINNED,
            "pinned: claim p50, last fifth / first fifth",
            "pinned: claim p99, last fifth / first fifth",
        ),
        (
            DUMPED,
            "pg_dump: claim p50, last fifth / first fifth",
            "pg_dump: claim p99, last fifth / first fifth",
        ),
    ] {
        let median = Requirement::bar(median, "x", Bound::AtMost(1.5));
        let tail = Requirement::bar(tail, "x", Bound::AtMost(2.0));
        judgements.push(evidence.median(median, contestant, "claim_p50_drift")?);
        judgements.push(evidence.median(tail, contestant, "claim_p99_drift")?);
    }
    for (contestant, text) in [
        (PINNED, "pinned: dead tuples in the hot tables"),
        (DUMPED, "pg_dump: dead tuples in the hot tables"),
    ] {
        let dead = Requirement::bar(text, "tuples", Bound::AtMost(0.0));
        judgements.push(evidence.highest(dead, contestant, "dead_tuples")?);
    }
    bar.judgements = judgements;
    Ok(())
}
