//! The synced tables of posthaste.toml and their syncs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use posthaste_sync::{Access, Index, IndexSync, Source, Synced};
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::connect::Address;
use crate::database::Database;
use crate::file::{self, DEFAULT_FILE, NeededSections};
use crate::terminal::{Terminal, escape_name};

/// Connections for rows, and for an index in Postgres.
const MAX_CONNECTIONS: usize = 4;

/// The option for the file.
#[derive(clap::Args)]
pub(crate) struct SyncFile {
    /// File that defines synced tables (default: posthaste.toml, or the file written by 'posthaste
    /// demo')
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A synced table with running syncs.
pub(crate) struct StartedSync {
    pub(crate) name: String,
    pub(crate) label: String,
    /// The sync of changes and that of re-indexes. Re-indexes have a separate queue, which can be
    /// paused and never blocks changes.
    pub(crate) syncs: [(String, IndexSync); 2],
}

/// The source and the index of a synced table.
pub(crate) struct SourceAndIndex {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) index: Arc<dyn Index>,
}

impl fmt::Display for StartedSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sync {}: table {}", self.name, self.label)
    }
}

impl StartedSync {
    /// Prints that the sync runs.
    pub(crate) fn print_started(&self, terminal: &Terminal) -> anyhow::Result<()> {
        let more = json!({ "table": self.name, "index": self.label });
        terminal.report_event("table", &self.to_string(), &more)
    }
}

impl SyncFile {
    /// Reads all synced tables of the file. Fails if there are none.
    pub(crate) fn tables(&self, database: &Database) -> anyhow::Result<Vec<Synced>> {
        let place = match &self.config {
            Some(file) => file.clone(),
            None => find_file(database),
        };
        read(&place)
    }

    /// Reads the table of this name; without a name, the only table.
    pub(crate) fn table(&self, database: &Database, name: Option<&str>) -> anyhow::Result<Synced> {
        let tables = self.tables(database)?;
        match name {
            Some(name) => {
                let mut chosen = select_tables(tables, &[name.to_owned()])?;
                chosen.pop().context("this table is not synced")
            }
            None if tables.len() > 1 => {
                bail!(
                    "several tables are synced; name one: {}",
                    table_names(&tables)
                )
            }
            None => tables
                .into_iter()
                .next()
                .context("this table is not synced"),
        }
    }
}

/// Returns the file of the current folder, or that of `posthaste demo` if only that exists.
fn find_file(database: &Database) -> PathBuf {
    let own = PathBuf::from(DEFAULT_FILE);
    let left = database.folder().join(DEFAULT_FILE);
    match !own.exists() && left.exists() {
        true => left,
        false => own,
    }
}

/// Reads all synced tables of a file. Fails if there are none.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Synced>> {
    let place = file.display();
    match file::read(file, NeededSections::Tables)? {
        Some(file) if file.tables.is_empty() => {
            bail!("{place}: has no synced table. Add a section [sync.<name>] with table and index.")
        }
        Some(file) => Ok(file.tables),
        None => bail!(
            "{place} does not exist. Create it with a section [sync.<name>], or name another \
             file with --config."
        ),
    }
}

/// Returns the named tables, or all if none is named.
pub(crate) fn select_tables(tables: Vec<Synced>, names: &[String]) -> anyhow::Result<Vec<Synced>> {
    let is_known = |name: &&String| !tables.iter().any(|one| one.name() == **name);
    if let Some(unknown) = names.iter().find(is_known) {
        bail!(
            "no sync is named {unknown}; the file has {}",
            self::table_names(&tables)
        );
    }
    let is_chosen =
        |table: &Synced| names.is_empty() || names.iter().any(|name| name == table.name());
    Ok(tables.into_iter().filter(is_chosen).collect())
}

fn table_names(tables: &[Synced]) -> String {
    let names: Vec<&str> = tables.iter().map(Synced::name).collect();
    names.join(", ")
}

/// Returns the queue of re-indexes of a table.
pub(crate) fn reindex_queue(table: &str) -> String {
    posthaste_sync::reindex_queue(table)
}

/// Returns the source of rows of a table.
pub(crate) fn open_source(table: &Synced, address: &Address) -> anyhow::Result<Arc<dyn Source>> {
    Ok(table.source(address.pool(MAX_CONNECTIONS)?))
}

/// Opens the source and the index of a table.
pub(crate) fn open_source_and_index(
    table: &Synced,
    address: &Address,
    access: Access,
) -> anyhow::Result<SourceAndIndex> {
    let pool = address.pool(MAX_CONNECTIONS)?;
    let other = match table.index_database() {
        Some(url) => {
            let other = Address::parse(url)
                .with_context(|| format!("sync {}: the database URL in 'index'", table.name()))?;
            other.pool(MAX_CONNECTIONS)?
        }
        None => pool.clone(),
    };
    let index = table.index(other, access);
    let index = index.with_context(|| format!("sync {}: index", table.name()))?;
    Ok(SourceAndIndex {
        source: table.source(pool),
        index,
    })
}

/// Starts the syncs of each table, polling at least this often if a period is given.
pub(crate) async fn start(
    tables: Vec<Synced>,
    address: &Address,
    period: Option<Duration>,
) -> anyhow::Result<Vec<StartedSync>> {
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let client = address.connect().await?;
    let mut started = Vec::with_capacity(tables.len());
    for table in tables {
        require_installed(&client, &table).await?;
        let SourceAndIndex { source, index } =
            open_source_and_index(&table, address, Access::Write)?;
        let made = source.check().await;
        made.with_context(|| format!("sync {}", table.name()))?;
        // Before clients wait for these documents. An index that cannot be read now is filled by
        // its sync.
        let _ = posthaste_sync::fill(&*source, &*index).await;
        let label = format!("{} to {}", table.table(), index.label());
        let sync = || {
            let sync = table.sync(Arc::clone(&source), Arc::clone(&index));
            let often = period.map_or(table.period(), |period| period.min(table.period()));
            sync.period(often).start()
        };
        started.push(StartedSync {
            name: table.name().to_owned(),
            label,
            syncs: [
                (table.queue(), sync()?),
                (reindex_queue(table.name()), sync()?),
            ],
        });
    }
    Ok(started)
}

/// Fails if the table is not prepared for syncing, or another table has this name.
pub(crate) async fn require_installed(client: &Client, table: &Synced) -> anyhow::Result<()> {
    let (name, wanted) = (table.name(), table.table());
    let sql = include_str!("commands/sync/installed.sql");
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&name, Type::TEXT), (&wanted, Type::TEXT)];
    let rows = client.query_typed(sql, &values).await?;
    let Some(row) = rows.first() else {
        bail!("sync {name}: its table has no triggers yet. Run 'posthaste sync install'.");
    };
    if row.try_get::<_, Option<bool>>(1)? == Some(false) {
        let prepared: String = row.try_get(0)?;
        bail!(
            "sync {name}: its triggers are on {}, not on {wanted}. If {wanted} replaced that \
             table, run SELECT posthaste.unsync_table('{name}'), then 'posthaste sync install'.",
            escape_name(&prepared)
        );
    }
    Ok(())
}
