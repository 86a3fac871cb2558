//! One large transaction: the memory of the process that captures it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::captor::{Captor, start};
use super::ground::{Ground, statements};
use super::options::Sizes;
use crate::processes::Memory;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const MIB: f64 = 1_048_576.0;
const MEMORY: &str = "peak_memory_mib";
/// The approximate number of bytes that a row adds to the log.
const ROW: u64 = 1_100;
/// The least number of captured megabytes per second, for the limit.
const SLOWEST: u64 = 2;

/// Runs it once and judges it.
pub(crate) async fn measure(ground: &Ground<'_>, bar: &mut Bar, sizes: Sizes) -> Result<()> {
    bar.parameter("megabytes", sizes.large_mb);
    let name = Captor::Direct.name();
    play(&[name], 1, &mut bar.runs, async |_| {
        once(ground, sizes.large_mb).await
    })
    .await?;
    let memory = Requirement::bar("peak memory of the process", "MiB", Bound::AtMost(64.0));
    let evidence = Evidence::from_runs(&bar.runs, 1);
    bar.judgements = vec![evidence.highest(memory, name, MEMORY)?];
    Ok(())
}

async fn once(ground: &Ground<'_>, megabytes: u64) -> Result<Figures> {
    let field = ground.field("outbox").await?;
    Captor::File.install(&field).await?;
    let mut process = start(&field.database, "file", "/dev/null", None).await?;
    let limit = Duration::from_secs(120 + megabytes / SLOWEST);
    field.is_read("last_event", limit).await?;
    let small = memory(process.pid())?;
    let (watch, before) = (Watch::begin()?, ground.meter().await?);
    let rows = i64::try_from(megabytes * 1_000_000 / ROW)?;
    field
        .client
        .execute(statements().get("large")?, &[&rows])
        .await?;
    let committed = Instant::now();
    let wal = ground.meter().await?.since(before).wal_bytes;
    field.is_read("last_event", limit).await?;
    let taken = committed.elapsed().as_secs_f64();
    let peak = memory(process.pid())?;
    process.end();
    process.finish().await?;
    Ok(Figures::measured_under(watch.finish()?)
        .with(MEMORY, peak)
        .with("memory_before_mib", small)
        .with("wal_mib", wal / MIB)
        .with("seconds_after_commit", taken))
}

fn memory(pid: u32) -> Result<f64> {
    let memory = Memory::read(pid).context("the process has ended")?;
    Ok(memory.peak as f64 / MIB)
}
