//! The user's own tables, and what open transactions do to those of the queue.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Session, StoreError};

/// A table whose dead rows wait to be removed.
pub(crate) struct DeadRows {
    pub(crate) name: String,
    pub(crate) dead: i64,
    pub(crate) live: i64,
    pub(crate) vacuumed_at: Option<Timestamp>,
}

/// Server processes whose transaction has enqueued; a prepared transaction has none.
pub(crate) async fn enqueuing(pool: &Pool) -> Result<Vec<Option<i32>>, StoreError> {
    let session = Session::read(pool).await?;
    let sql = include_str!("enqueuing.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.end().await?;
    let pids: Result<_, tokio_postgres::Error> = rows.iter().map(|row| row.try_get(0)).collect();
    Ok(pids?)
}

/// Tables with the most dead rows.
pub(crate) async fn dead_rows(pool: &Pool) -> Result<Vec<DeadRows>, StoreError> {
    let session = Session::read(pool).await?;
    let sql = include_str!("dead_rows.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.end().await?;
    let read: Result<Vec<DeadRows>, _> = rows.iter().map(read).collect();
    Ok(read?)
}

fn read(row: &Row) -> Result<DeadRows, tokio_postgres::Error> {
    Ok(DeadRows {
        name: row.try_get("name")?,
        dead: row.try_get("dead")?,
        live: row.try_get("live")?,
        vacuumed_at: row.try_get("vacuumed_at")?,
    })
}
