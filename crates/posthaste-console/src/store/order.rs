//! Jobs that wait for other jobs of their ordering key.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};

/// A job that waits for its turn.
pub(crate) struct Waiting {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) enqueued_at: Timestamp,
}

/// Reads the jobs that wait for their turn of a key, the next first.
pub(crate) async fn waiting_for_turn(
    session: &Session,
    key: &str,
    most: i64,
) -> Result<Vec<Waiting>, StoreError> {
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&key, Type::TEXT), (&most, Type::INT8)];
    let sql = include_str!("behind_key.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    let read: Result<Vec<Waiting>, _> = rows.iter().map(waiting_from_row).collect();
    Ok(read?)
}

fn waiting_from_row(row: &Row) -> Result<Waiting, tokio_postgres::Error> {
    Ok(Waiting {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        queue: row.try_get("queue")?,
        enqueued_at: row.try_get("enqueued_at")?,
    })
}
