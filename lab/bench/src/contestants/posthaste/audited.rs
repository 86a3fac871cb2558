//! A table and an equal index in Postgres, and the audit that compares them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ::posthaste_sync::{Audit, AuditReport, Postgres, Row, RowVersion, Source, SourceError, Table};
use anyhow::{Context, Result};
use futures_util::future::BoxFuture;

use super::crew::pool;
use super::statements;
use crate::database::Database;
use crate::processes::Memory;

/// Creates this many rows, each with its document, and no jobs.
pub(crate) async fn fill_equal(database: &Database, rows: u64) -> Result<()> {
    let client = database.connect().await?;
    for name in ["synced_table", "sync_table_silent"] {
        client.batch_execute(statements().get(name)?).await?;
    }
    let count = i64::try_from(rows)?;
    client
        .execute(statements().get("audit_rows")?, &[&count])
        .await?;
    client
        .execute(statements().get("audit_documents")?, &[])
        .await?;
    client.batch_execute("ANALYZE").await?;
    Ok(())
}

/// Runs an audit. Returns its result, and the memory of this process after each `every` rows and
/// documents.
pub(crate) async fn audit(database: &Database, every: u64) -> Result<(AuditReport, Vec<u64>)> {
    let pool = pool(database.config().clone())?;
    let source = Sampled {
        rows: Table::new(pool.clone(), "page"),
        every: every.max(1),
        looked_at: AtomicU64::new(0),
        resident: Mutex::default(),
    };
    let index = Postgres::new(pool, "page");
    let found = Audit::default().run(&source, &index).await?;
    let resident = source.resident.into_inner();
    Ok((found, resident.ok().context("a sample was not taken")?))
}

/// Rows whose reader samples the memory of this process.
struct Sampled {
    rows: Table,
    every: u64,
    looked_at: AtomicU64,
    resident: Mutex<Vec<u64>>,
}

impl Sampled {
    fn count(&self, more: usize) {
        let before = self.looked_at.fetch_add(more as u64, Ordering::Relaxed);
        let after = before + more as u64;
        if before / self.every == after / self.every {
            return;
        }
        let memory = Memory::read(std::process::id());
        if let (Some(memory), Ok(mut resident)) = (memory, self.resident.lock()) {
            resident.push(memory.resident);
        }
    }
}

impl Source for Sampled {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        // Called for a page of documents: if both sides are equal, nothing else calls it.
        self.count(ids.len());
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
            let page = self.rows.walk(after, most).await?;
            self.count(page.len());
            Ok(page)
        })
    }
}
