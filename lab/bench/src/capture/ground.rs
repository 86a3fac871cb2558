//! The server of the captures, a new database for each run, and measurements of the server.

use std::time::Duration;

use anyhow::{Context, Result};
use posthaste_testkit::{PgServer, eventually};
use tokio_postgres::Client;

use crate::contestants::posthaste;
use crate::database::{Database, instruments};
use crate::processes::{TICKS_PER_SECOND, tree_ticks};
use crate::statements::Statements;

/// Settings in addition to those that every contestant of the bench has.
pub(crate) const SETTINGS: [(&str, &str); 2] =
    [("wal_level", "logical"), ("max_wal_senders", "10")];

/// Settings without which captures and relays do not accept a Redis as safe.
pub(crate) const KEEPS: [(&str, &str); 1] = [("appendonly", "yes")];

/// The limit for short waits.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) fn statements() -> Statements {
    Statements::parse(include_str!("../../locking/capture.sql"))
}

/// The server.
pub(crate) struct Ground<'a> {
    server: &'a PgServer,
    observer: Client,
}

impl<'a> Ground<'a> {
    /// Connects to a server for measurements.
    pub(crate) async fn prepare(server: &'a PgServer) -> Result<Self> {
        let observer = Database::named(&server.url("postgres"))?.connect().await?;
        Ok(Self { server, observer })
    }

    /// Creates a database with the store and the table of the statement named `table`. Drops the
    /// slots of earlier runs before, which would keep the old database in use.
    pub(crate) async fn field(&self, table: &str) -> Result<Field> {
        self.drop_slots().await?;
        let database = Database::fresh(self.server).await?;
        posthaste::prepare(&database).await?;
        let client = database.connect().await?;
        client.batch_execute(statements().get(table)?).await?;
        Ok(Field { database, client })
    }

    async fn drop_slots(&self) -> Result<()> {
        eventually(SOON, "no slot is left", async || {
            for name in ["end_sessions", "drop_slots"] {
                self.observer
                    .query_one(statements().get(name)?, &[])
                    .await?;
            }
            let left = self.observer.query_one(statements().get("slots")?, &[]);
            Ok(left.await?.get::<_, i64>(0) == 0)
        })
        .await
    }

    /// Reads the counters of the server.
    pub(crate) async fn meter(&self) -> Result<Meter> {
        let wal = instruments().get("wal_bytes")?;
        let wal: i64 = self.observer.query_one(wal, &[]).await?.get(0);
        let pid = self.server.pid().context("the server does not run")?;
        Ok(Meter {
            seconds: tree_ticks(pid)? as f64 / TICKS_PER_SECOND,
            wal_bytes: wal as f64,
        })
    }
}

/// Counters of a server: totals, or differences between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Meter {
    pub(crate) seconds: f64,
    pub(crate) wal_bytes: f64,
}

impl Meter {
    /// The differences to an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            seconds: self.seconds - earlier.seconds,
            wal_bytes: self.wal_bytes - earlier.wal_bytes,
        }
    }
}

/// The database of one run.
pub(crate) struct Field {
    pub(crate) database: Database,
    pub(crate) client: Client,
}

impl Field {
    /// Reads one number from the server.
    pub(crate) async fn number(&self, statement: &str) -> Result<i64> {
        let row = self.client.query_one(statements().get(statement)?, &[]);
        Ok(row.await?.get(0))
    }

    /// Waits until everything that is in the log now was captured. Marks are written with events,
    /// so the statement of this name writes one more event.
    pub(crate) async fn is_read(&self, last: &str, within: Duration) -> Result<()> {
        let end = self.client.query_one(statements().get("log_end")?, &[]);
        let end: String = end.await?.get(0);
        self.client.execute(statements().get(last)?, &[]).await?;
        eventually(within, "all is captured", async || {
            let asked = statements().get("is_read")?;
            Ok(self.client.query_one(asked, &[&end]).await?.get(0))
        })
        .await
    }
}
