//! Periodic jobs.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};

/// A row of `posthaste.periodic`.
pub(crate) struct Periodic {
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) missed: String,
    pub(crate) job: String,
    pub(crate) queue: Option<String>,
    pub(crate) tag: String,
    /// Its next time; `None` until a leader has seen it, and while it is off.
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) is_off: bool,
    /// The error of the leader, if it could not enqueue the job.
    pub(crate) error: Option<String>,
    /// When it was enqueued last.
    pub(crate) enqueued_at: Option<Timestamp>,
    /// The arguments; `None` if they are long.
    pub(crate) kwargs: Option<String>,
}

pub(crate) async fn read_periodic(pool: &Pool) -> Result<Vec<Periodic>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let sql = include_str!("periodic_list.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.commit().await?;
    let read: Result<Vec<Periodic>, _> = rows.iter().map(periodic_from_row).collect();
    Ok(read?)
}

fn periodic_from_row(row: &Row) -> Result<Periodic, tokio_postgres::Error> {
    Ok(Periodic {
        name: row.try_get("name")?,
        schedule: row.try_get("schedule")?,
        time_zone: row.try_get("time_zone")?,
        missed: row.try_get("missed")?,
        job: row.try_get("job")?,
        queue: row.try_get("queue")?,
        tag: row.try_get("tag")?,
        next_at: row.try_get("next_at")?,
        is_off: row.try_get("is_off")?,
        error: row.try_get("error")?,
        enqueued_at: row.try_get("enqueued_at")?,
        kwargs: row.try_get("kwargs")?,
    })
}

/// Enqueues the job of a periodic job now, and returns how many jobs that were: 0 if the row does
/// not exist.
pub(crate) async fn run_periodic(pool: &Pool, name: &str) -> Result<usize, StoreError> {
    let session = Session::begin_action(pool).await?;
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
    let sql = include_str!("periodic_run.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    session.commit().await?;
    Ok(rows.len())
}

/// Switches a periodic job off or on, and returns how many rows that changed.
pub(crate) async fn switch_periodic(
    pool: &Pool,
    name: &str,
    is_on: bool,
) -> Result<usize, StoreError> {
    let session = Session::begin_action(pool).await?;
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
    let sql = match is_on {
        true => include_str!("periodic_on.sql"),
        false => include_str!("periodic_off.sql"),
    };
    let rows = session.client()?.execute_typed(sql, &values).await?;
    session.commit().await?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}
