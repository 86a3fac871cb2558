//! A queue without workers, and a steady load on another: its cost must not grow.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::clock::Clock;
use crate::contestants::posthaste::{self, Crew, Manner};
use crate::database::{Database, instruments};
use crate::gauge::sample_during;
use crate::load::Load;
use crate::processes::tree_ticks;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::{greatest, slices};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const PAUSED_QUEUE: &str = "paused";

/// The size of a segment: smaller than the library's default, so that the ready log is full, and
/// what pins it is moved to the overflow, well before the second third of the run begins.
const SEGMENT_MEBIBYTES: i64 = 8;

const PERIOD: Duration = Duration::from_secs(2);

/// One long run is a round: growth is judged within it, so it is not repeated for a median.
pub(super) const ROUNDS: u32 = 1;

/// Runs the round and judges it.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let plan = &bench.plan;
    bar.parameter("jobs in the paused queue", plan.paused_jobs);
    bar.parameter("jobs per second beside it", plan.churn_rate);
    bar.parameter("seconds", plan.paused_seconds);
    bar.parameter("MiB per segment", SEGMENT_MEBIBYTES);
    play(&[OURS], ROUNDS, &mut bar.runs, async |_| pause(bench).await).await?;
    let evidence = Evidence::from_runs(&bar.runs, ROUNDS);
    let disk = Requirement::bar(
        "peak of the disk in use, last third / middle third",
        "x",
        Bound::AtMost(1.2),
    );
    let processor = Requirement::bar(
        "server's processor time, last third / middle third",
        "x",
        Bound::AtMost(1.2),
    );
    bar.judgements = vec![
        evidence.median(disk, OURS, "disk_growth")?,
        evidence.median(processor, OURS, "processor_growth")?,
    ];
    Ok(())
}

struct Sample {
    disk: f64,
    server_ticks: u64,
}

async fn pause(bench: &Bench<'_>) -> Result<Figures> {
    let plan = &bench.plan;
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    posthaste::preload_queue(&database, plan.paused_jobs, PAUSED_QUEUE).await?;
    let crew = Crew::start(
        &database,
        Manner::fast().segments_of(SEGMENT_MEBIBYTES),
        |_| {},
    )
    .await?;
    let observer = database.connect().await?;
    let first = posthaste::segments(&observer).await?;
    let disk = observer.prepare(instruments().get("schema_bytes")?).await?;
    let server = bench.server.pid().context("the server has ended")?;

    let watch = Watch::begin()?;
    let (load, seconds) = (Load::churn(plan.churn_rate), plan.paused_seconds);
    let loaded = database.clone();
    let offering = tokio::spawn(async move { load.offer(&loaded, Clock::start(), seconds).await });
    let (offered, samples) = sample_during(offering, PERIOD, async || {
        let bytes: i64 = observer
            .query_one(&disk, &[&posthaste::SCHEMA])
            .await?
            .get(0);
        Ok(Sample {
            disk: bytes as f64,
            server_ticks: tree_ticks(server)?,
        })
    })
    .await?;
    let processor = watch.finish()?;
    let offered = offered??;
    crew.reach(offered, Duration::from_secs(30)).await?;
    crew.stop().await?;
    let last = posthaste::segments(&observer).await?;

    let disks: Vec<f64> = samples.iter().map(|sample| sample.disk).collect();
    let ticks: Vec<f64> = samples
        .windows(2)
        .filter_map(|pair| {
            Some(
                pair.last()?
                    .server_ticks
                    .saturating_sub(pair.first()?.server_ticks) as f64,
            )
        })
        .collect();
    Ok(Figures::measured_under(processor)
        .with("disk_growth", last_to_middle(&disks, greatest)?)
        .with(
            "processor_growth",
            last_to_middle(&ticks, |span| span.iter().sum::<f64>() / span.len() as f64)?,
        )
        .with("disk_peak_mib", greatest(&disks) / f64::from(1 << 20))
        .with(
            "server_processor_share",
            ticks.iter().sum::<f64>() / (100.0 * PERIOD.as_secs_f64() * ticks.len() as f64),
        )
        .with(
            "jobs_per_second",
            offered as f64 / plan.paused_seconds as f64,
        )
        .with("rotations", (last.0 - first.0) as f64)
        .with("truncations", (last.1 - first.1) as f64)
        .with_series("disk_bytes", disks)
        .with_series("server_ticks_per_period", ticks))
}

fn last_to_middle(sample: &[f64], summary: impl Fn(&[f64]) -> f64) -> Result<f64> {
    let thirds = slices(sample, 3);
    let [_, middle, last] = thirds[..] else {
        anyhow::bail!("the run was too short to be divided")
    };
    Ok(summary(last) / summary(middle))
}

#[cfg(test)]
mod tests {
    use super::last_to_middle;
    use crate::statistics::greatest;

    #[test]
    fn the_first_third_is_not_counted() -> anyhow::Result<()> {
        assert_eq!(
            last_to_middle(&[90.0, 1.0, 2.0, 4.0, 5.0, 3.0], greatest)?,
            1.25
        );
        Ok(())
    }
}
