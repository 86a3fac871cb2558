//! Bare statements: the cost of one row, and of very many, without a queue.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio_postgres::Client;

use crate::database::Database;
use crate::statements::Statements;

/// A table with the columns of a job and one index.
#[derive(Debug, Clone)]
pub(crate) struct Bare {
    statements: Statements,
}

impl Bare {
    /// The bare table's statements.
    pub(crate) fn new() -> Self {
        Self {
            statements: Statements::parse(include_str!("../../locking/bare.sql")),
        }
    }

    /// Creates the empty table.
    pub(crate) async fn prepare(&self, database: &Database) -> Result<()> {
        Ok(database
            .connect()
            .await?
            .batch_execute(self.statements.get("schema")?)
            .await?)
    }

    /// The statement that inserts one row: `$1` name, `$2` arguments.
    pub(crate) fn enqueue_statement(&self) -> Result<&'static str> {
        self.statements.get("enqueue")
    }

    /// Inserts many rows by one `INSERT ... SELECT`.
    pub(crate) async fn bulk(&self, client: &Client, rows: u64) -> Result<Duration> {
        let begun = Instant::now();
        let inserted = client
            .execute(self.statements.get("bulk")?, &[&i64::try_from(rows)?])
            .await?;
        let taken = begun.elapsed();
        ensure!(inserted == rows, "{inserted} of {rows} rows were inserted");
        Ok(taken)
    }
}
