//! `posthaste capture copy`.

use std::fmt;

use anyhow::{Context as _, anyhow, bail};
use posthaste_capture::{CopyOverview, TableName, cancel_copy, list_copies};
use posthaste_observe::format::pluralize;
use posthaste_observe::redact::error_text;
use serde::Serialize;

use crate::captures::CaptureFile;
use crate::database::Database;
use crate::terminal::Terminal;

/// Send the existing rows of a table, alongside its changes; 'capture run' reads them
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,

    /// Name of the table
    #[arg(value_name = "TABLE", required_unless_present = "progress")]
    table: Option<String>,

    /// Copy only rows for which this SQL expression is true
    #[arg(long = "where", value_name = "SQL")]
    filter: Option<String>,

    /// Show the progress of copies without starting one
    #[arg(long, conflicts_with_all = ["filter", "cancel"])]
    progress: bool,

    /// Cancel the copy of the table
    #[arg(long, conflicts_with = "filter")]
    cancel: bool,

    #[command(flatten)]
    config: CaptureFile,
}

#[derive(Serialize)]
#[serde(transparent)]
struct CopyStatus(CopyOverview);

impl fmt::Display for CopyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = &self.0;
        write!(f, "{}: {}", copy.id, copy.table)?;
        if let Some(filter) = &copy.filter {
            write!(f, " where {filter}")?;
        }
        let (rows, about) = (copy.rows, pluralize(copy.expected, "row", "rows"));
        let sent = pluralize(rows, "row", "rows");
        match (copy.ended_at, &copy.problem) {
            (None, None) => write!(f, ": {rows} of about {about}"),
            (None, Some(problem)) => write!(f, ": failed after {sent}: {problem}"),
            (Some(at), _) if copy.is_cancelled => write!(f, ": cancelled at {at}, {sent}"),
            (Some(at), _) => write!(f, ": ended at {at}, {sent}"),
        }
    }
}

pub(super) async fn copy(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let name = &*arguments.capture;
    let client = database.address().connect().await?;
    let table = arguments.table.as_deref().map(TableName::read);
    let table = table.transpose().map_err(|problem| anyhow!(problem))?;
    if !arguments.progress {
        let table = table.as_ref().context("name a table")?;
        if arguments.cancel {
            if !cancel_copy(&client, name, table).await? {
                bail!("no copy of {table} is in progress");
            }
        } else {
            let capture = arguments.config.capture(name)?;
            let database = database.address().database();
            let begun = capture
                .request_copy(&database, table, arguments.filter.as_deref())
                .await;
            if !begun.map_err(|error| anyhow!("capture {name}: {error}"))? {
                bail!("a copy of {table} is already in progress; --cancel cancels it");
            }
        }
    }
    let mut found = list_copies(&client, Some(name)).await?;
    if let Some(table) = table {
        found.retain(|one| one.table == table.to_string());
    }
    if !arguments.progress {
        found.truncate(1);
    }
    for copy in &mut found {
        copy.problem = copy.problem.take().map(|error| error_text(&error));
    }
    let found: Vec<_> = found.into_iter().map(CopyStatus).collect();
    terminal.print_results(&found, "nothing was copied")
}
