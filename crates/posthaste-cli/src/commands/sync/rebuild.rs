//! `posthaste sync rebuild`: builds a new index from Postgres beside the current one, and then
//! replaces that one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, bail};
use futures_util::future::BoxFuture;
use indicatif::HumanCount;
use posthaste_sync::{Audit, Elastic, Field, Rebuilt, Row, RowVersion, Source, SourceError};
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::database::Database;
use crate::options::parse_rate_per_second;
use crate::progress::{Progress, Unit};
use crate::site;
use crate::syncs::{self, SyncFile};
use crate::terminal::Terminal;

/// Rebuild an index of Elasticsearch or OpenSearch by the definition in the file
///
/// The old index is searched and synced meanwhile; then the alias moves to the new one. If a
/// rebuild is interrupted, run it again: it resumes. Exit code 0: the alias points to the new
/// index; 1: it does not, and searches are unaffected unless the error says otherwise.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Table whose index to rebuild; optional if the file has only one
    #[arg(value_name = "TABLE")]
    table: Option<String>,

    #[command(flatten)]
    config: SyncFile,

    /// Maximum rate at which documents are written and compared, such as 1000/s or 60000/m
    #[arg(long, value_name = "RATE", value_parser = parse_rate_per_second)]
    rate: Option<u32>,

    /// Delete the unfinished new index instead of resuming
    #[arg(long, conflicts_with = "rate")]
    give_up: bool,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let table = arguments
        .config
        .table(database, arguments.table.as_deref())?;
    let name = table.name();
    let index = table
        .elastic()
        .with_context(|| format!("sync {name}: index"))?;
    let Some(index) = index else {
        bail!(
            "sync {name}: only an index on Elasticsearch or OpenSearch can be rebuilt while the \
             old one stays in use. For others, stop the sync, delete the index, and run 'posthaste \
             sync reindex {name} --all'."
        );
    };
    let client = database.address().connect().await?;
    syncs::require_installed(&client, &table).await?;
    site::require_adopted(database.address()).await?;
    if arguments.give_up {
        return abandon_rebuild(name, &index, terminal).await;
    }
    let about = estimated_rows(&client, name).await?;
    let rows = RowsWithProgress {
        rows: syncs::open_source(&table, database.address())?,
        walked: AtomicU64::new(0),
        progress: terminal.progress("rebuilding", about, Unit::Rows),
    };
    let audit = Audit {
        rate: arguments.rate,
        ..Audit::default()
    };
    let rebuilt = index.rebuild(&rows, audit).await;
    drop(rows);
    let rebuilt = rebuilt.with_context(|| {
        format!(
            "sync {name}: the index was not replaced. Run the command again to resume, or with \
                 --give-up to delete the new index"
        )
    })?;
    let done = RebuildResult::new(name, rebuilt);
    terminal.print_result(&done, &done)?;
    terminal.print_remark(&format!(
        "{} is no longer updated: delete it in five minutes, when no earlier batch can still be in \
         flight",
        done.replaced
    ));
    Ok(())
}

/// The result of an abandoned rebuild.
#[derive(Serialize)]
struct AbandonedRebuild {
    table: String,
    /// Whether a rebuild was in progress.
    was_begun: bool,
}

async fn abandon_rebuild(name: &str, index: &Elastic, terminal: &Terminal) -> anyhow::Result<()> {
    let was_begun = index.give_up_rebuild().await?;
    let line = match was_begun {
        true => format!("{name}: the unfinished index is deleted"),
        false => format!("{name}: no rebuild is in progress"),
    };
    let table = name.to_owned();
    terminal.print_result(line, &AbandonedRebuild { table, was_begun })
}

/// Returns the planner's estimate of the number of rows; `None` if the table was never analyzed.
async fn estimated_rows(client: &Client, name: &str) -> anyhow::Result<Option<u64>> {
    let row = client
        .query_typed_one(include_str!("rows.sql"), &[(&name, Type::TEXT)])
        .await?;
    let rows: i64 = row.try_get(0)?;
    Ok(u64::try_from(rows).ok().filter(|rows| *rows > 0))
}

/// The rows of a table, with the progress of a walk over them.
struct RowsWithProgress {
    rows: Arc<dyn Source>,
    walked: AtomicU64,
    progress: Progress,
}

impl Source for RowsWithProgress {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.rows.versions(ids)
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        self.rows.rows(ids)
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async move {
            if after.is_none() {
                // The first walk, or a further one that checks the repairs of the previous one.
                self.walked.store(0, Ordering::Relaxed);
            }
            self.progress.set(self.walked.load(Ordering::Relaxed));
            let page = self.rows.walk(after, most).await?;
            self.walked.fetch_add(page.len() as u64, Ordering::Relaxed);
            Ok(page)
        })
    }

    fn fields(&self) -> BoxFuture<'_, Result<Vec<Field>, SourceError>> {
        self.rows.fields()
    }

    fn recipe(&self) -> String {
        self.rows.recipe()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        self.rows.check()
    }
}

/// The result of a rebuild.
#[derive(Serialize)]
struct RebuildResult {
    table: String,
    index: String,
    replaced: String,
    /// The number of rows in the last walk.
    rows: u64,
    repaired: u64,
    changed_meanwhile: u64,
}

impl RebuildResult {
    fn new(table: &str, rebuilt: Rebuilt) -> Self {
        let Rebuilt {
            index,
            replaced,
            found,
        } = rebuilt;
        Self {
            table: table.to_owned(),
            index,
            replaced,
            rows: found.rows,
            repaired: found.repaired,
            changed_meanwhile: found.changed,
        }
    }
}

impl fmt::Display for RebuildResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, index, replaced) = (&self.table, &self.index, &self.replaced);
        let rows = HumanCount(self.rows);
        write!(f, "{table}: {index} with {rows} rows replaced {replaced}")
    }
}
