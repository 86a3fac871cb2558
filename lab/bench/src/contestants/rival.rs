//! The two rivals, used as efficiently as possible.
//!
//! Each worker has two connections. One claims the next batch, committing without waiting for the
//! disk, while the other completes the previous batch, waiting for the disk: the two round trips
//! and the flush overlap. All statements are prepared, and a no-op handler costs a rival one
//! decoded row.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::value::RawValue;
use tokio_postgres::types::Json;
use tokio_postgres::{Client, Row, Statement};

use super::{CONNECTIONS, QUEUE};
use crate::database::{Database, Session};
use crate::statements::Statements;

/// The batch sizes at which each rival is measured; its best one counts.
pub(crate) const BATCHES: [i64; 2] = [100, 1_000];

/// A queue that consists of its statements.
#[derive(Debug, Clone)]
pub(crate) struct Rival {
    name: &'static str,
    statements: Statements,
}

/// A rival at one batch size.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) label: String,
    pub(crate) rival: Rival,
    pub(crate) batch: i64,
}

/// Each rival at each batch size.
pub(crate) fn entries() -> Vec<Entry> {
    [Rival::update_shape(), Rival::skip_locked()]
        .into_iter()
        .flat_map(|rival| BATCHES.map(|batch| rival.clone().at(batch)))
        .collect()
}

impl Rival {
    /// UPDATE under SKIP LOCKED to claim, DELETE to complete.
    pub(crate) fn skip_locked() -> Self {
        Self {
            name: "skip_locked",
            statements: Statements::parse(include_str!("../../locking/skip_locked.sql")),
        }
    }

    /// One wide row per job, UPDATE to running, UPDATE to completed; the row stays.
    pub(crate) fn update_shape() -> Self {
        Self {
            name: "update_shape",
            statements: Statements::parse(include_str!("../../locking/update_shape.sql")),
        }
    }

    /// This rival at one batch size.
    pub(crate) fn at(self, batch: i64) -> Entry {
        Entry {
            label: format!("{} at {batch}", self.name),
            rival: self,
            batch,
        }
    }

    /// Its name in reports.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Creates the tables, enqueues `jobs` jobs in one statement and runs vacuum.
    pub(crate) async fn preload(&self, database: &Database, jobs: u64) -> Result<()> {
        let client = database.connect().await?;
        client.batch_execute(self.statements.get("schema")?).await?;
        client
            .execute(self.statements.get("preload")?, &[&i64::try_from(jobs)?])
            .await?;
        client.batch_execute(self.statements.get("settle")?).await?;
        Ok(())
    }

    /// Works a preloaded backlog to its end.
    pub(crate) async fn drain(
        &self,
        database: &Database,
        jobs: u64,
        batch: i64,
    ) -> Result<Duration> {
        let workers =
            try_join_all((0..CONNECTIONS / 2).map(|_| self.worker(database, batch))).await?;
        let begun = Instant::now();
        let done = try_join_all(workers.into_iter().map(Worker::work_until_empty)).await?;
        let taken = begun.elapsed();
        let done: u64 = done.into_iter().sum();
        ensure!(done == jobs, "{done} of {jobs} jobs were worked");
        Ok(taken)
    }

    /// Fails while any job is not completed.
    pub(crate) async fn ensure_nothing_remains(&self, database: &Database) -> Result<()> {
        let client = database.connect().await?;
        let remaining: i64 = client
            .query_one(self.statements.get("remaining")?, &[])
            .await?
            .get(0);
        ensure!(remaining == 0, "{remaining} jobs were not completed");
        Ok(())
    }

    /// The statement that enqueues one job: `$1` name, `$2` arguments.
    pub(crate) fn enqueue_statement(&self) -> Result<&'static str> {
        self.statements.get("enqueue")
    }

    /// Creates the empty tables.
    pub(crate) async fn prepare(&self, database: &Database) -> Result<()> {
        Ok(database
            .connect()
            .await?
            .batch_execute(self.statements.get("schema")?)
            .await?)
    }

    async fn worker(&self, database: &Database, batch: i64) -> Result<Worker> {
        let claims = database.session(Session::Hasty).await?;
        let completions = database.session(Session::Durable).await?;
        Ok(Worker {
            claim: claims.prepare(self.statements.get("claim")?).await?,
            complete: completions
                .prepare(self.statements.get("complete")?)
                .await?,
            claims,
            completions,
            batch,
        })
    }
}

struct Worker {
    claims: Client,
    completions: Client,
    claim: Statement,
    complete: Statement,
    batch: i64,
}

impl Worker {
    async fn work_until_empty(self) -> Result<u64> {
        let mut done = 0;
        let mut worked: Vec<i64> = Vec::new();
        loop {
            let claimed = async { self.claims.query(&self.claim, &[&QUEUE, &self.batch]).await };
            let completed = async {
                if worked.is_empty() {
                    return Ok(0);
                }
                self.completions.execute(&self.complete, &[&worked]).await
            };
            let (rows, completed) = tokio::try_join!(claimed, completed)?;
            ensure!(
                completed == worked.len() as u64,
                "{completed} of {} jobs were completed",
                worked.len()
            );
            done += completed;
            worked = rows.iter().map(handle).collect::<Result<_, _>>()?;
            if worked.is_empty() {
                return Ok(done);
            }
        }
    }
}

/// The no-op handler: decodes the row as any worker would, and does nothing with it.
fn handle(row: &Row) -> Result<i64, tokio_postgres::Error> {
    let name: &str = row.try_get("name")?;
    let kwargs: Json<Box<RawValue>> = row.try_get("kwargs")?;
    black_box((name, kwargs));
    row.try_get("id")
}
