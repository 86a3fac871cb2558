//! Runs this program as a separate process for a single task, so that its memory is that of the
//! task alone.

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::database::Database;
use crate::taint::{ProcessorUse, Watch};

/// Runs a separate process on a database. Returns its output, and the CPU time that the machine
/// used in that time.
pub(crate) async fn run<T: DeserializeOwned>(
    database: &Database,
    arguments: &[String],
) -> Result<(T, ProcessorUse)> {
    let watch = Watch::begin()?;
    let output = Command::new(std::env::current_exe()?)
        .args(arguments)
        // The password must not appear in the process list.
        .env("POSTHASTE_BENCH_URL", database.url())
        .kill_on_drop(true)
        .output()
        .await?;
    let processor = watch.finish()?;
    ensure!(
        output.status.success(),
        "the process failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = serde_json::from_slice(&output.stdout);
    Ok((said.context("the process printed no samples")?, processor))
}
