//! The user's own tables, and open transactions that affect the queue's tables.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Session, StoreError};

/// A table with dead rows that vacuum has not removed.
pub(crate) struct DeadRows {
    pub(crate) name: String,
    pub(crate) dead: i64,
    pub(crate) live: i64,
    pub(crate) vacuumed_at: Option<Timestamp>,
}

/// Reads the process ids of transactions that have enqueued jobs; `None` for prepared transactions.
pub(crate) async fn enqueuing_pids(pool: &Pool) -> Result<Vec<Option<i32>>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let sql = include_str!("enqueuing.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.commit().await?;
    let pids: Result<_, tokio_postgres::Error> = rows.iter().map(|row| row.try_get(0)).collect();
    Ok(pids?)
}

/// Reads the tables with the most dead rows.
pub(crate) async fn read_dead_rows(pool: &Pool) -> Result<Vec<DeadRows>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let sql = include_str!("dead_rows.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.commit().await?;
    let read: Result<Vec<DeadRows>, _> = rows.iter().map(dead_rows_from_row).collect();
    Ok(read?)
}

fn dead_rows_from_row(row: &Row) -> Result<DeadRows, tokio_postgres::Error> {
    Ok(DeadRows {
        name: row.try_get("name")?,
        dead: row.try_get("dead")?,
        live: row.try_get("live")?,
        vacuumed_at: row.try_get("vacuumed_at")?,
    })
}
