//! The worker's memory over a long backlog, in a separate process.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::again;
use crate::bench::Bench;
use crate::contestants::posthaste::{self, Carrier, Crew, Manner};
use crate::database::Database;
use crate::options::BacklogOptions;
use crate::processes::Memory;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::{greatest, slices};
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const SAMPLES: u64 = 50;
const LIMIT: Duration = Duration::from_secs(600);
/// The growth of the process's memory from the second fifth of the run to the last.
pub(crate) const GROWTH: &str = "resident_growth_mib";

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (jobs, rounds) = (bench.plan.memory_jobs, bench.plan.rounds);
    bar.parameter("jobs", jobs);
    play(&[OURS], rounds, &mut bar.runs, async |_| {
        let database = Database::fresh(bench.server).await?;
        posthaste::prepare(&database).await?;
        posthaste::preload(&database, jobs).await?;
        work_in_a_process(&database, jobs, None).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let growth = Requirement::bar(
        "growth of resident memory after the first fifth",
        "MiB",
        Bound::AtMost(4.0),
    );
    bar.judgements = vec![evidence.median(growth, OURS, GROWTH)?];
    Ok(())
}

#[derive(Debug, Serialize, Deserialize)]
struct Sample {
    done: u64,
    resident: u64,
}

/// Makes a process work a backlog, or relay it to a webhook, and returns how much memory it used.
pub(crate) async fn work_in_a_process(
    database: &Database,
    jobs: u64,
    hook: Option<&str>,
) -> Result<Figures> {
    let mut arguments = vec![
        "work-backlog".to_owned(),
        format!("--jobs={jobs}"),
        format!("--every={}", (jobs / SAMPLES).max(1)),
    ];
    arguments.extend(hook.map(|hook| format!("--hook={hook}")));
    let (samples, processor) = again::run::<Vec<Sample>>(database, &arguments).await?;
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
        .with(GROWTH, greatest(last) - greatest(second))
        .with("resident_peak_mib", greatest(&resident))
        .with_series("resident_mib", resident))
}

/// Works a backlog in this process, and prints how much memory it used on the way.
pub(crate) async fn work_backlog(options: &BacklogOptions) -> Result<()> {
    let database = Database::named(&options.url)?;
    let samples = match &options.hook {
        None => {
            let crew = Crew::start(&database, Manner::fast(), |_| {}).await?;
            let samples = sample(options, async |jobs| crew.reach(jobs, LIMIT).await).await?;
            crew.stop().await?;
            samples
        }
        Some(hook) => {
            let carrier = Carrier::to_hook(&database, hook).await?;
            let samples = sample(options, async |jobs| carrier.reach(jobs, LIMIT).await).await?;
            carrier.stop().await?;
            samples
        }
    };
    serde_json::to_writer(std::io::stdout().lock(), &samples)?;
    Ok(())
}

async fn sample(
    options: &BacklogOptions,
    reach: impl AsyncFn(u64) -> Result<()>,
) -> Result<Vec<Sample>> {
    let own = std::process::id();
    let mut samples = Vec::new();
    for done in (1..=options.jobs / options.every.max(1)).map(|step| step * options.every) {
        reach(done).await?;
        let memory = Memory::read(own).context("/proc/self/status cannot be read")?;
        let resident = memory.resident;
        samples.push(Sample { done, resident });
    }
    reach(options.jobs).await?;
    Ok(samples)
}
