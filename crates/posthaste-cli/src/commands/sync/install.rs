//! `posthaste sync install`: adds a version column to the tables of posthaste.toml, and triggers
//! that enqueue a job with each change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Context as _;
use posthaste_sync::{Body, Elastic, SourceError, Synced};
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::database::Database;
use crate::failure;
use crate::syncs::{self, SyncFile};
use crate::terminal::Terminal;

/// Prepare tables for syncing: add a version column, and triggers that enqueue a job for each
/// change; run it again after changing their settings
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Tables to prepare (default: all in the file)
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,

    #[command(flatten)]
    config: SyncFile,

    /// Print the statements instead of running them
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
    let tables = syncs::select_tables(arguments.config.tables(database)?, &arguments.tables)?;
    let client = database.address().connect().await?;
    let mut all = Vec::with_capacity(tables.len());
    for table in tables {
        let name = table.name();
        let statement = table.install_statement(&client).await?;
        if !arguments.dry_run {
            let done = client.batch_execute(&statement).await;
            done.with_context(|| format!("cannot install sync {name}"))?;
            let EarlyProblems { problem, fields } = find_early_problems(&table, database).await?;
            if let Some(problem) = problem {
                let problem = failure::redact(&problem);
                terminal.print_remark(&format!(
                    "sync {name}: the document of the first row cannot be built: {problem}"
                ));
            }
            let is_elastic = table.elastic()?.is_some();
            for field in fields.iter().filter(|_| is_elastic) {
                if let Some(reason) = Elastic::unfit_field(field) {
                    terminal.print_remark(&format!(
                        "sync {name}: the index rejects documents with the field \"{field}\": \
                         {reason}. List the fields under 'document' in posthaste.toml, and install \
                         again"
                    ));
                }
            }
        }
        all.push(Installed {
            table: name.to_owned(),
            statement,
            is_done: !arguments.dry_run,
        });
    }
    terminal.print_results(&all, "no tables")?;
    if !arguments.dry_run {
        terminal.print_remark(
            "'posthaste sync run' fills an empty index; 'posthaste sync reindex TABLE --all' fills \
             one that is not empty. Restart a running 'sync run' to include a new table",
        );
    }
    Ok(())
}

/// Problems that would otherwise appear only when documents are due.
#[derive(Default)]
struct EarlyProblems {
    /// The error of building the document of the first row.
    problem: Option<String>,
    /// The known fields of documents, from their columns and from the first row.
    fields: BTreeSet<String>,
}

async fn find_early_problems(table: &Synced, database: &Database) -> anyhow::Result<EarlyProblems> {
    let source = syncs::open_source(table, database.address())?;
    let mut found = EarlyProblems::default();
    let read = async {
        let known = source.fields().await?;
        let first = source.walk(None, 1).await?;
        let ids: Vec<String> = first.into_iter().map(|row| row.id).collect();
        Ok((known, source.rows(&ids).await?))
    };
    let read: Result<_, SourceError> = read.await;
    match read {
        Ok((known, rows)) => {
            found
                .fields
                .extend(known.into_iter().map(|field| field.name));
            for row in rows {
                match row.body {
                    Body::Unmade(problem) => found.problem = Some(problem),
                    Body::Document(text) => {
                        let document: BTreeMap<String, IgnoredAny> =
                            serde_json::from_str(&text).unwrap_or_default();
                        found.fields.extend(document.into_keys());
                    }
                    Body::Hidden => {}
                }
            }
        }
        Err(error) => found.problem = Some(error.to_string()),
    }
    Ok(found)
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_done {
            true => write!(f, "{}: each change now enqueues an index job", self.table),
            false => write!(f, "{};", self.statement),
        }
    }
}
