//! `posthaste sync install`: gives the tables of posthaste.toml their versions, and the triggers
//! that enqueue a job with each change.

use std::fmt;

use anyhow::Context as _;
use posthaste_sync::{Body, Synced};
use serde::Serialize;

use crate::database::Database;
use crate::failure;
use crate::syncs::{self, Config};
use crate::terminal::Terminal;

/// Prepare tables to be synced: add a column of versions, and triggers that enqueue a job with each
/// change; run it again when their settings have changed
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Prepare these tables; without any, all of the file
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,

    #[command(flatten)]
    config: Config,

    /// Print the statements and run none
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Installed {
    table: String,
    statement: String,
    is_done: bool,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let tables = syncs::chosen(arguments.config.tables(database)?, &arguments.tables)?;
    let client = database.address().connect().await?;
    let mut all = Vec::with_capacity(tables.len());
    for table in tables {
        let name = table.name();
        let statement = table.install_statement(&client).await?;
        if !arguments.dry_run {
            let done = client.batch_execute(&statement).await;
            done.with_context(|| format!("sync {name} was not installed"))?;
            if let Some(problem) = problem(&table, database).await? {
                let problem = failure::redact(&problem);
                terminal.note(&format!(
                    "sync {name}: the document of the first row cannot be made: {problem}"
                ));
            }
        }
        all.push(Installed {
            table: name.to_owned(),
            statement,
            is_done: !arguments.dry_run,
        });
    }
    terminal.results(&all, "no tables")?;
    if !arguments.dry_run {
        terminal.note(
            "'posthaste sync run' fills an index that is empty, and 'posthaste sync reindex TABLE \
             --all' one that is not. A 'sync run' that runs already must be started again to see a \
             new table",
        );
    }
    Ok(())
}

/// Why the document of the first row cannot be made, which would else be seen only when it is due.
async fn problem(table: &Synced, database: &Database) -> anyhow::Result<Option<String>> {
    let source = syncs::source(table, database.address())?;
    let read = async {
        let first = source.walk(None, 1).await?;
        let ids: Vec<String> = first.into_iter().map(|row| row.id).collect();
        source.rows(&ids).await
    };
    Ok(match read.await {
        Ok(rows) => rows.into_iter().find_map(|row| match row.body {
            Body::Unmade(problem) => Some(problem),
            _ => None,
        }),
        Err(error) => Some(error.to_string()),
    })
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_done {
            true => write!(f, "{}: each change enqueues its index job now", self.table),
            false => write!(f, "{};", self.statement),
        }
    }
}
