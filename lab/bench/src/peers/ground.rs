//! The server of a comparison, and a new database for each run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use posthaste_testkit::{PgServer, eventually};
use tokio_postgres::Client;

use super::adapter;
use super::roster::Peer;
use crate::database::{Database, instruments};
use crate::processes::{TICKS_PER_SECOND, tree_ticks};
use crate::statements::Statements;

/// Settings in addition to those that every contestant of the bench has.
pub(crate) const SETTINGS: [(&str, &str); 2] = [
    ("shared_preload_libraries", "pg_stat_statements"),
    ("max_connections", "120"),
];

const LONGEST_REST: Duration = Duration::from_secs(120);

fn statements() -> Statements {
    Statements::parse(include_str!("../../locking/peers.sql"))
}

/// The server.
pub(crate) struct Ground<'a> {
    pub(crate) server: &'a PgServer,
    observer: Client,
}

impl<'a> Ground<'a> {
    /// Prepares a server for comparisons.
    pub(crate) async fn prepare(server: &'a PgServer) -> Result<Self> {
        let observer = Database::named(&server.url("postgres"))?.connect().await?;
        for name in ["extension", "watcher"] {
            observer.batch_execute(statements().get(name)?).await?;
        }
        Ok(Self { server, observer })
    }

    /// Creates a database with a peer's schema.
    pub(crate) async fn field(&self, peer: Peer) -> Result<Field> {
        let database = Database::fresh(self.server).await?;
        let version = adapter::set_up(peer, &database).await?;
        let watcher = database.connect().await?;
        watcher
            .batch_execute(statements().get("as_watcher")?)
            .await?;
        Ok(Field {
            peer,
            database,
            version,
            watcher,
        })
    }

    /// Reads the counters of the server.
    pub(crate) async fn meter(&self) -> Result<Meter> {
        let (ask, own) = (statements(), instruments());
        let row = self.observer.query_one(ask.get("statements")?, &[]).await?;
        let wal = self.observer.query_one(own.get("wal_bytes")?, &[]).await?;
        let commits = self.observer.query_one(ask.get("commits")?, &[]).await?;
        let pid = self.server.pid().context("the server does not run")?;
        Ok(Meter {
            seconds: tree_ticks(pid)? as f64 / TICKS_PER_SECOND,
            wal_bytes: wal.get::<_, i64>(0) as f64,
            statements: row.get::<_, i64>("calls") as f64,
            blocks: row.get::<_, i64>("blocks") as f64,
            commits: commits.get::<_, i64>(0) as f64,
        })
    }
}

/// A database with one peer in it.
pub(crate) struct Field {
    pub(crate) peer: Peer,
    pub(crate) database: Database,
    pub(crate) version: String,
    watcher: Client,
}

impl Field {
    /// Updates the planner's statistics: autovacuum would not run in time after a fill.
    pub(crate) async fn analyze(&self) -> Result<()> {
        Ok(self
            .watcher
            .batch_execute(statements().get("analyze")?)
            .await?)
    }

    /// The number of jobs that are not done.
    pub(crate) async fn remaining(&self) -> Result<i64> {
        let name = format!("remaining_{}", self.peer.name);
        let row = self
            .watcher
            .query_one(statements().get(&name)?, &[])
            .await?;
        Ok(row.get(0))
    }

    /// Waits until all jobs are done.
    pub(crate) async fn is_empty(&self) -> Result<()> {
        eventually(LONGEST_REST, "all jobs are done", async || {
            Ok(self.remaining().await? == 0)
        })
        .await
    }

    /// Fails while jobs remain.
    pub(crate) async fn ensure_empty(&self) -> Result<()> {
        let remaining = self.remaining().await?;
        ensure!(remaining == 0, "{remaining} jobs are not done");
        Ok(())
    }
}

/// Counters of a server: totals, or differences between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Meter {
    pub(crate) seconds: f64,
    pub(crate) wal_bytes: f64,
    pub(crate) statements: f64,
    pub(crate) blocks: f64,
    pub(crate) commits: f64,
}

impl Meter {
    /// The differences to an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            wal_bytes: self.wal_bytes - earlier.wal_bytes,
            statements: self.statements - earlier.statements,
            blocks: self.blocks - earlier.blocks,
            commits: self.commits - earlier.commits,
        }
    }
}
