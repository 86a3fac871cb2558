//! Holds the xmin horizon back, by a REPEATABLE READ transaction or a real `pg_dump`.
//!
//! A pin that was released early would invalidate every figure under it, so each one proves at its
//! end that it was held from its beginning.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use posthaste_testkit::PgServer;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio_postgres::Client;

use crate::database::{Database, instruments};

/// A horizon that is held back.
#[derive(Debug)]
pub(crate) enum Pin {
    /// A REPEATABLE READ transaction with a snapshot.
    Snapshot(HeldBackend, Client),
    /// A `pg_dump` whose output is no longer read.
    Dump(HeldBackend, Child),
}

impl Pin {
    /// Opens a transaction that keeps its snapshot.
    pub(crate) async fn snapshot(database: &Database) -> Result<Self> {
        let instruments = instruments();
        let client = database.connect().await?;
        client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await?;
        client.query_one(instruments.get("pin")?, &[]).await?;
        let pid: i32 = client
            .query_one(instruments.get("backend")?, &[])
            .await?
            .get(0);
        Ok(Self::Snapshot(
            HeldBackend::watch(database, pid).await?,
            client,
        ))
    }

    /// Starts a dump of the whole database and reads only its beginning: it holds its snapshot and
    /// an ACCESS SHARE lock on every table while its output is not read.
    pub(crate) async fn dump(server: &PgServer, database: &Database, schema: &str) -> Result<Self> {
        let instruments = instruments();
        let client = database.connect().await?;
        client.batch_execute(instruments.get("ballast")?).await?;
        let mut dump = Command::from(server.tool("pg_dump"))
            .args(["--dbname=bench", "--format=plain"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start pg_dump")?;
        // The first bytes are written after the locks on all tables were taken.
        let mut beginning = [0; 64];
        dump.stdout
            .as_mut()
            .context("pg_dump has no output")?
            .read_exact(&mut beginning)
            .await?;
        let pid: i32 = client
            .query_opt(instruments.get("dump_backend")?, &[])
            .await?
            .context("pg_dump has no backend with a snapshot")?
            .get(0);
        let locks: i64 = client
            .query_one(instruments.get("dump_locks")?, &[&pid, &schema])
            .await?
            .get(0);
        ensure!(locks > 0, "pg_dump holds no lock on a table of {schema}");
        Ok(Self::Dump(HeldBackend::watch(database, pid).await?, dump))
    }

    /// Proves that the pin was held all the time, and releases it.
    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::Snapshot(held, client) => {
                held.verify().await?;
                client.batch_execute("ROLLBACK").await?;
            }
            Self::Dump(held, mut dump) => {
                held.verify().await?;
                let mut rest = dump.stdout.take().context("pg_dump has no output")?;
                tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
                let status = tokio::time::timeout(Duration::from_secs(60), dump.wait()).await??;
                ensure!(status.success(), "pg_dump ended with {status}");
            }
        }
        Ok(())
    }
}

/// A backend and its snapshot at the first observation.
#[derive(Debug)]
pub(crate) struct HeldBackend {
    observer: Client,
    pid: i32,
    since: (Option<String>, Option<String>),
}

impl HeldBackend {
    async fn watch(database: &Database, pid: i32) -> Result<Self> {
        let observer = database.connect().await?;
        let since = horizon(&observer, pid).await?;
        ensure!(since.0.is_some(), "backend {pid} holds no snapshot");
        Ok(Self {
            observer,
            pid,
            since,
        })
    }

    async fn verify(&self) -> Result<()> {
        let now = horizon(&self.observer, self.pid).await?;
        ensure!(
            now == self.since,
            "the pin was not held: {:?} became {now:?}",
            self.since
        );
        Ok(())
    }
}

async fn horizon(observer: &Client, pid: i32) -> Result<(Option<String>, Option<String>)> {
    let row = observer
        .query_opt(instruments().get("held_since")?, &[&pid])
        .await?;
    Ok(row.map_or((None, None), |row| (row.get(0), row.get(1))))
}
