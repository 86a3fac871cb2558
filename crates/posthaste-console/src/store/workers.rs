//! Running jobs of workers, and workers that have ended.

use std::collections::BTreeMap;

use deadpool_postgres::Pool;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Session, StoreError};

/// A worker that has ended.
pub(crate) struct EndedWorker {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) started_at: Timestamp,
    pub(crate) stopped_at: Timestamp,
    /// Whether it stopped cleanly; otherwise it was declared dead.
    pub(crate) is_clean: bool,
}

/// Counts the running jobs of each worker.
pub(crate) async fn running_by_worker(pool: &Pool) -> Result<BTreeMap<i64, i64>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let sql = include_str!("running_by_worker.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.commit().await?;
    let read = rows
        .iter()
        .map(|row| Ok((row.try_get("worker")?, row.try_get("jobs")?)));
    read.collect()
}

/// Reads the workers that ended within the last day.
pub(crate) async fn read_ended_workers(pool: &Pool) -> Result<Vec<EndedWorker>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let sql = include_str!("ended_workers.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.commit().await?;
    let read: Result<Vec<EndedWorker>, _> = rows.iter().map(ended_worker_from_row).collect();
    Ok(read?)
}

fn ended_worker_from_row(row: &Row) -> Result<EndedWorker, tokio_postgres::Error> {
    Ok(EndedWorker {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        started_at: row.try_get("started_at")?,
        stopped_at: row.try_get("stopped_at")?,
        is_clean: row.try_get("clean")?,
    })
}
