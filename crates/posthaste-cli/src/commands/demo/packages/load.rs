//! The loading process, which is killed: it commits rows with their index jobs, changes and deletes
//! some, syncs and captures them. The next process continues.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use posthaste_capture::{Capture, Until};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Transaction};

use crate::commands::sync::wait_until_visible;
use crate::database::Database;
use crate::file::{self, DEFAULT_FILE, NeededSections};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, Settings, StopGrace};
use crate::{captures, syncs};

/// Rows per transaction, each with its job.
const BATCH_ROWS: i64 = 500;

/// Load packages and sync their index, for 'posthaste demo --packages'
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the packages and the settings
    folder: PathBuf,

    /// ID of the load
    run: i64,

    #[command(flatten)]
    patience: StopGrace,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let file = arguments.folder.join(DEFAULT_FILE);
    let tables = syncs::read(&file)?;
    let captures = file::read(&file, NeededSections::Captures)?.unwrap_or_default();
    let captures = captures.captures;
    let mut client = database.address().connect().await?;
    let syncs = syncs::start(tables, database.address(), None).await?;
    let settings = Settings {
        syncs: syncs.iter().flat_map(|one| one.syncs.clone()).collect(),
        ..Settings::new(arguments.patience)
    };
    let mut worker = worker::start(database.address(), settings).await?;
    let capturing = captures::start(captures.clone(), database.address(), Until::Stopped)?;
    terminal.print_remark("loading");
    let story = async {
        commit_packages(&mut client, &arguments.folder, arguments.run).await?;
        wait_until_visible(&client, &syncs).await?;
        wait_until_captured(capturing, captures, database).await
    };
    let outcome = tokio::select! {
        outcome = story => outcome,
        () = signals.stop_token().cancelled() => bail_stopped(),
        error = worker.wait_for_end() => Err(error),
    };
    let stopped = worker.stop().await;
    outcome.and(stopped)
}

/// Stops running captures, then captures everything that is committed now.
async fn wait_until_captured(
    capturing: Vec<captures::StartedCapture>,
    captures: Vec<Capture>,
    database: &Database,
) -> anyhow::Result<()> {
    for one in capturing {
        one.running.stop();
        end(one).await?;
    }
    for one in captures::start(captures, database.address(), Until::Caught)? {
        end(one).await?;
    }
    Ok(())
}

async fn end(mut one: captures::StartedCapture) -> anyhow::Result<()> {
    let ended = one.running.ended().await;
    ended.map_err(|error| anyhow!("capture {}: {error}", one.name))
}

fn bail_stopped() -> anyhow::Result<()> {
    bail!("stopped before the end")
}

async fn commit_packages(client: &mut Client, folder: &Path, run: i64) -> anyhow::Result<()> {
    let file = folder.join(super::PACKAGES_FILE);
    let file = File::open(&file).with_context(|| file.display().to_string())?;
    let mut lines = BufReader::new(file).lines();
    let mut read = 0;
    loop {
        let transaction = client.transaction().await?;
        let turn = transaction
            .query_typed_one(include_str!("turn.sql"), &[(&run, Type::INT8)])
            .await?;
        let (loaded, total): (i64, i64) = (turn.try_get(0)?, turn.try_get(1)?);
        if loaded == total {
            return Ok(());
        }
        // Skips rows that earlier processes have committed.
        while read < loaded {
            lines
                .next()
                .context("the file is shorter than when the load began")??;
            read += 1;
        }
        let mut batch = Vec::new();
        for line in lines
            .by_ref()
            .take(usize::try_from(BATCH_ROWS.min(total - loaded))?)
        {
            let line: serde_json::Value = serde_json::from_str(&line?)?;
            batch.push(line);
            read += 1;
        }
        commit_batch(transaction, run, read, batch).await?;
    }
}

/// Inserts rows; the triggers of the table enqueue their jobs. Changes and deletes earlier rows.
async fn commit_batch(
    transaction: Transaction<'_>,
    run: i64,
    to: i64,
    batch: Vec<serde_json::Value>,
) -> anyhow::Result<()> {
    let turn = to / BATCH_ROWS;
    let batch = serde_json::Value::Array(batch);
    transaction
        .execute_typed(include_str!("insert.sql"), &[(&batch, Type::JSONB)])
        .await?;
    let changed = transaction
        .execute_typed(include_str!("change.sql"), &[(&turn, Type::INT8)])
        .await?;
    let deleted = transaction
        .query_typed_one(include_str!("delete.sql"), &[(&turn, Type::INT8)])
        .await?;
    let deleted: i64 = deleted.try_get(0)?;
    transaction
        .execute_typed(
            include_str!("advance.sql"),
            &[
                (&run, Type::INT8),
                (&to, Type::INT8),
                (&i64::try_from(changed)?, Type::INT8),
                (&deleted, Type::INT8),
            ],
        )
        .await?;
    Ok(transaction.commit().await?)
}
