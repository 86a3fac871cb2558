//! Jobs that were given up and are kept: how many there are, and how they go for good.

use deadpool_postgres::Pool;
use posthaste::JobId;
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};
use crate::filter::Filter;
use crate::words;

/// How many dead jobs match; and whether only some were read.
pub(crate) async fn kept_count(
    pool: &Pool,
    filter: &Filter,
    most: i64,
) -> Result<(i64, bool), StoreError> {
    let session = Session::read(pool).await?;
    let (state, error) = (filter.state.map(words::state), filter.error_pattern());
    let since = filter.since_at();
    let values: [(&(dyn ToSql + Sync), Type); 7] = [
        (&state, Type::TEXT),
        (&filter.queue, Type::TEXT),
        (&filter.name, Type::TEXT),
        (&filter.tag, Type::TEXT),
        (&error, Type::TEXT),
        (&most, Type::INT8),
        (&since, Type::TIMESTAMPTZ),
    ];
    let sql = include_str!("kept_count.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    let Some(row) = rows.first() else {
        return Ok((0, false));
    };
    let (matching, scanned): (i64, i64) = (row.try_get("matching")?, row.try_get("scanned")?);
    session.end().await?;
    Ok((matching, scanned >= most))
}

/// Deletes these, of those that are kept; how many.
pub(crate) async fn delete_kept(session: &Session, ids: &[i64]) -> Result<usize, StoreError> {
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&ids, Type::INT8_ARRAY)];
    let sql = "DELETE FROM posthaste.dead AS d WHERE d.id = ANY ($1::bigint[])";
    let rows = session.client()?.execute_typed(sql, &values).await?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

/// The same in a transaction of its own.
pub(crate) async fn delete_jobs(pool: &Pool, ids: &[JobId]) -> Result<usize, StoreError> {
    let session = Session::act(pool).await?;
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let deleted = delete_kept(&session, &ids).await?;
    session.end().await?;
    Ok(deleted)
}
