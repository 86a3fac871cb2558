//! An index that is synced to a table whose rows it lacks, and then verified.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::contestants::posthaste::{self, Indexed, Place};
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const TANTIVY: &str = "tantivy";
const OPENSEARCH: &str = "opensearch";
const NAMES: [&str; 2] = [TANTIVY, OPENSEARCH];
const SHARE: &str = "percent_of_the_sum";
const VERIFIED: &str = "verified_per_second";
const BATCH: &str = "one_batch_s";
/// The number of jobs in one batch of the sync.
const BATCH_JOBS: u64 = 2_500;
const DIRECT_WRITES: u32 = 200;

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let rounds = bench.plan.rounds;
    bar.parameter("rows", bench.plan.sync_rows);
    bar.parameter("documents per batch", BATCH_JOBS);
    play(&NAMES, rounds, &mut bar.runs, async |index| {
        let name = NAMES.get(index).copied().unwrap_or_default();
        once(bench, name).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let of = |name: &str| format!("of 1/(1/a + 1/b), {name}");
    for name in NAMES {
        let text = of(name);
        let share = Requirement::bar(&text, "%", Bound::AtLeast(80.0));
        bar.judgements.push(evidence.median(share, name, SHARE)?);
    }
    let verified = "rows seen to be true, tantivy";
    let verified = Requirement::bar(verified, "rows/s", Bound::AtLeast(20_000.0));
    bar.judgements
        .push(evidence.median(verified, TANTIVY, VERIFIED)?);
    // 15 s are a quarter of the sync's default period.
    let batch = "one batch from the start of the worker to its end, opensearch";
    let batch = Requirement::bar(batch, "s", Bound::AtMost(15.0));
    bar.judgements
        .push(evidence.median(batch, OPENSEARCH, BATCH)?);
    Ok(())
}

async fn once(bench: &Bench<'_>, name: &str) -> Result<Figures> {
    let rows = bench.plan.sync_rows;
    let place = match name {
        TANTIVY => Place::folder()?,
        _ => Place::server()?,
    };
    warm(bench, &place).await?;
    let watch = Watch::begin()?;
    let table = filled(bench, rows).await?;
    let read = table.read().await?;
    let documents = table.documents().await?;
    let bare = place.write_bare("bare", documents).await?;
    let table = filled(bench, rows).await?;
    let index = place.index("synced").await?;
    let written = table.write(index.clone()).await?;
    let verified = table.verify(index.clone()).await?;
    let direct = Indexed::direct(index, DIRECT_WRITES).await?;
    let batch = filled(bench, BATCH_JOBS.min(rows)).await?;
    let batch = batch.write(place.index("batch").await?).await?;
    let rate = |taken: Duration| rows as f64 / taken.as_secs_f64();
    let sum = 1.0 / (1.0 / rate(read) + 1.0 / rate(bare));
    Ok(Figures::measured_under(watch.finish()?)
        .with("read_per_second", rate(read))
        .with("bare_per_second", rate(bare))
        .with("written_per_second", rate(written))
        .with(SHARE, rate(written) / sum * 100.0)
        .with(VERIFIED, rate(verified))
        .with("direct_ms", direct.as_secs_f64() * 1_000.0)
        .with(BATCH, batch.as_secs_f64()))
}

/// Runs everything once before the measurement: the server compiles hot code during the first half
/// minute, which would delay the contestant that is measured first.
async fn warm(bench: &Bench<'_>, place: &Place) -> Result<()> {
    let table = filled(bench, bench.plan.sync_rows).await?;
    let documents = table.documents().await?;
    place.write_bare("warm-bare", documents).await?;
    let index = place.index("warm").await?;
    table.write(index.clone()).await?;
    table.verify(index).await?;
    Ok(())
}

async fn filled(bench: &Bench<'_>, rows: u64) -> Result<Indexed> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    Indexed::filled(database, rows).await
}
