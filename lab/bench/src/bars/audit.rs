//! The memory of an audit over very many rows and documents, in a separate process.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::again;
use crate::bench::Bench;
use crate::contestants::posthaste;
use crate::database::Database;
use crate::options::AuditOptions;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::{greatest, slices};
use crate::verdict::{Bound, Evidence, Requirement};

/// One round is enough: it takes minutes, and needs no comparison.
pub(crate) const ROUNDS: u32 = 1;
const OURS: &str = "posthaste";
const SAMPLES: u64 = 100;
const GROWTH: &str = "resident_growth_mib";

/// Runs the round and judges it.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let rows = bench.plan.audit_rows;
    bar.parameter("rows", rows);
    play(&[OURS], ROUNDS, &mut bar.runs, async |_| {
        let database = Database::fresh(bench.server).await?;
        posthaste::prepare(&database).await?;
        posthaste::fill_equal(&database, rows).await?;
        audit_in_a_process(&database, rows).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, ROUNDS);
    let growth = "growth of resident memory after the first tenth";
    let growth = Requirement::bar(growth, "MiB", Bound::AtMost(16.0));
    bar.judgements = vec![evidence.median(growth, OURS, GROWTH)?];
    Ok(())
}

#[derive(Debug, Serialize, Deserialize)]
struct Said {
    seconds: f64,
    resident: Vec<u64>,
}

async fn audit_in_a_process(database: &Database, rows: u64) -> Result<Figures> {
    let arguments = ["audit-rows".to_owned(), format!("--rows={rows}")];
    let (said, processor) = again::run::<Said>(database, &arguments).await?;
    let resident = said.resident.iter();
    let resident: Vec<f64> = resident
        .map(|bytes| *bytes as f64 / f64::from(1 << 20))
        .collect();
    let tenths = slices(&resident, 10);
    let [first, ..] = tenths[..] else {
        anyhow::bail!("the audit took too few samples")
    };
    let rest = resident.get(first.len()..).unwrap_or_default();
    Ok(Figures::measured_under(processor)
        .with(GROWTH, greatest(rest) - greatest(first))
        .with("resident_peak_mib", greatest(&resident))
        .with("rows_per_second", rows as f64 / said.seconds)
        .with_series("resident_mib", resident))
}

/// Audits in this process, and prints how long that took and how much memory it used on the way.
pub(crate) async fn audit_rows(options: &AuditOptions) -> Result<()> {
    let database = Database::named(&options.url)?;
    let begun = Instant::now();
    // Each row and each document is checked.
    let every = options.rows.saturating_mul(2) / SAMPLES;
    let (found, resident) = posthaste::audit(&database, every).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let sides = (found.rows, found.documents);
    ensure!(
        found.is_equal() && sides == (options.rows, options.rows),
        "table and index are equal, but the audit found: {found:?}"
    );
    let said = Said { seconds, resident };
    serde_json::to_writer(std::io::stdout().lock(), &said)?;
    Ok(())
}
