//! Very many jobs by one `INSERT ... SELECT`, with all checks on, against a bare table with one
//! index.
//!
//! While posthaste's statement runs, its backend's memory is sampled and a high-priority job is
//! committed every quarter of a second. The bare statement runs alone, which is in its favour.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::clock::{Clock, Sightings};
use crate::contestants::bare::Bare;
use crate::contestants::posthaste::{self, Crew, Manner, Producer};
use crate::database::{Database, instruments};
use crate::gauge::sample_during;
use crate::processes::Memory;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::{greatest, percentile, slices};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const BARE: &str = "bare table with one index";
const RATE: &str = "rows_per_second";
const PERIOD: Duration = Duration::from_millis(250);

/// Lower priorities run first; the bulk has priority 0.
const HIGH_PRIORITY: i32 = -1;

/// The first number of probes, above every number in the bulk.
const FIRST_PROBE: u64 = 1 << 40;

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (rows, rounds) = (bench.plan.bulk_rows, bench.plan.rounds);
    bar.parameter("rows", rows);
    play(&[BARE, OURS], rounds, &mut bar.runs, async |index| {
        let database = Database::fresh(bench.server).await?;
        if index == 0 {
            insert_bare(&database, rows).await
        } else {
            insert_posthaste(&database, rows).await
        }
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let share = Requirement::bar("share of the bare table's rate", "x", Bound::AtLeast(0.45));
    let memory = Requirement::bar(
        "growth of the backend's own memory after its first tenth",
        "MiB",
        Bound::AtMost(16.0),
    );
    let start = Requirement::bar(
        "slowest start of a high-priority job meanwhile",
        "ms",
        Bound::AtMost(100.0),
    );
    bar.judgements = vec![
        evidence.ratio(share, OURS, BARE, RATE)?,
        evidence.highest(memory, OURS, "backend_growth_mib")?,
        evidence.highest(start, OURS, "probe_start_slowest_ms")?,
    ];
    Ok(())
}

async fn insert_bare(database: &Database, rows: u64) -> Result<Figures> {
    let bare = Bare::new();
    bare.prepare(database).await?;
    let client = database.connect().await?;
    let watch = Watch::begin()?;
    let taken = bare.bulk(&client, rows).await?;
    Ok(Figures::measured_under(watch.finish()?).with(RATE, rows as f64 / taken.as_secs_f64()))
}

async fn insert_posthaste(database: &Database, rows: u64) -> Result<Figures> {
    posthaste::prepare(database).await?;
    let clock = Clock::start();
    let (committed, started) = (Sightings::default(), Sightings::default());
    let seen = started.clone();
    let crew = Crew::start(database, Manner::fast(), move |number| {
        if number >= FIRST_PROBE {
            seen.note(number, clock.now());
        }
    })
    .await?;
    let producer = Producer::connect(database).await?;
    producer.enqueue_at(0, HIGH_PRIORITY).await?;
    crew.reach(1, Duration::from_secs(30)).await?;

    let client = database.connect().await?;
    let pid: i32 = client
        .query_one(instruments().get("backend")?, &[])
        .await?
        .get(0);
    let pid = u32::try_from(pid)?;
    let watch = Watch::begin()?;
    let inserting = tokio::spawn(async move { posthaste::bulk(&client, rows).await });
    let mut probe = FIRST_PROBE;
    let (inserted, memory) = sample_during(inserting, PERIOD, async || {
        producer.enqueue_at(probe, HIGH_PRIORITY).await?;
        committed.note(probe, clock.now());
        probe += 1;
        Memory::read(pid).context("the inserting backend has ended")
    })
    .await?;
    let processor = watch.finish()?;
    let taken: Duration = inserted??;
    let probes = usize::try_from(probe - FIRST_PROBE)?;
    wait_for(&started, probes).await?;
    crew.stop().await?;
    Ok(figures(
        Figures::measured_under(processor),
        &memory,
        &started.milliseconds_since(&committed),
    )
    .with(RATE, rows as f64 / taken.as_secs_f64())
    .with("probes", probes as f64))
}

fn figures(figures: Figures, memory: &[Memory], starts: &[f64]) -> Figures {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let own: Vec<f64> = memory
        .iter()
        .map(|memory| mebibytes(memory.anonymous))
        .collect();
    let tenths = slices(&own, 10);
    let first = tenths
        .first()
        .copied()
        .map_or(0.0, greatest)
        .max(own.first().copied().unwrap_or_default());
    figures
        .with("backend_growth_mib", (greatest(&own) - first).max(0.0))
        .with("backend_own_peak_mib", greatest(&own))
        .with(
            "backend_resident_peak_mib",
            memory.last().map_or(0.0, |memory| mebibytes(memory.peak)),
        )
        .with("probe_start_p50_ms", percentile(starts, 0.5))
        .with("probe_start_slowest_ms", greatest(starts))
        .with_series("backend_own_mib", own)
        .with_series("probe_start_ms", starts.to_vec())
}

async fn wait_for(started: &Sightings, probes: usize) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while started.all().len() < probes {
        ensure!(
            Instant::now() < deadline,
            "{} of {probes} high-priority jobs were started",
            started.all().len()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
