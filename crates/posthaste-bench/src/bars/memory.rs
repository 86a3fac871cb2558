//! The worker's memory over a long backlog, in a process that does nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::bench::Bench;
use crate::contestants::posthaste::{self, Crew, Manner};
use crate::database::Database;
use crate::options::BacklogOptions;
use crate::processes::Memory;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::{greatest, slices};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const SAMPLES: u64 = 50;

/// Plays the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (jobs, rounds) = (bench.plan.memory_jobs, bench.plan.rounds);
    bar.parameter("jobs", jobs);
    bar.remarks.push(
        "The first fifth is left to the allocator; the peak of the last fifth is held against that of the second. Over a \
         million jobs, a leak of seven bytes a job would show."
            .to_owned(),
    );
    play(&[OURS], rounds, &mut bar.runs, async |_| {
        let database = Database::fresh(bench.server).await?;
        posthaste::prepare(&database).await?;
        posthaste::preload(&database, jobs).await?;
        work_in_a_process(&database, jobs).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let growth = Requirement::bar(
        "growth of resident memory after the first fifth",
        "MiB",
        Bound::AtMost(4.0),
    );
    bar.judgements = vec![evidence.median(growth, OURS, "resident_growth_mib")?];
    Ok(())
}

#[derive(Debug, Serialize, Deserialize)]
struct Sample {
    done: u64,
    resident: u64,
}

async fn work_in_a_process(database: &Database, jobs: u64) -> Result<Figures> {
    let watch = Watch::begin()?;
    let output = Command::new(std::env::current_exe()?)
        .args([
            "work-backlog",
            &format!("--jobs={jobs}"),
            &format!("--every={}", (jobs / SAMPLES).max(1)),
        ])
        // The password stays out of the process list.
        .env("POSTHASTE_BENCH_URL", database.url())
        .kill_on_drop(true)
        .output()
        .await?;
    let processor = watch.finish()?;
    ensure!(
        output.status.success(),
        "the worker failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let samples: Vec<Sample> =
        serde_json::from_slice(&output.stdout).context("the worker printed no samples")?;
    posthaste::ensure_nothing_remains(database).await?;
    let resident: Vec<f64> = samples
        .iter()
        .map(|sample| sample.resident as f64 / f64::from(1 << 20))
        .collect();
    let fifths = slices(&resident, 5);
    let [_, second, _, _, last] = fifths[..] else {
        anyhow::bail!("the worker took too few samples")
    };
    Ok(Figures::measured_under(processor)
        .with("resident_growth_mib", greatest(last) - greatest(second))
        .with("resident_peak_mib", greatest(&resident))
        .with_series("resident_mib", resident))
}

/// The worker process: works a backlog and prints how much memory it held on the way.
pub(crate) async fn work_backlog(options: &BacklogOptions) -> Result<()> {
    let database = Database::named(&options.url)?;
    let own = std::process::id();
    let mut samples = Vec::new();
    let crew = Crew::start(&database, Manner::fast(), |_| {}).await?;
    for target in (1..=options.jobs / options.every.max(1)).map(|step| step * options.every) {
        crew.reach(target, Duration::from_secs(600)).await?;
        let resident = Memory::read(own)
            .context("/proc/self/status cannot be read")?
            .resident;
        samples.push(Sample {
            done: target,
            resident,
        });
    }
    crew.reach(options.jobs, Duration::from_secs(600)).await?;
    crew.stop().await?;
    serde_json::to_writer(std::io::stdout().lock(), &samples)?;
    Ok(())
}
