//! Jobs that were given up: their number, and their deletion.

use std::collections::HashSet;

use deadpool_postgres::Pool;
use posthaste::{JobId, State};
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};
use crate::filter::Filter;
use crate::format;

/// Counts the matching given-up jobs; also returns whether only some were read.
pub(crate) async fn count_given_up(
    pool: &Pool,
    filter: &Filter,
    most: i64,
) -> Result<(i64, bool), StoreError> {
    let session = Session::begin_read(pool).await?;
    let (state, error) = (filter.state.map(format::state_name), filter.error_pattern());
    let (since, until) = (filter.since_at(), filter.until_at());
    let [queue, name, tag, key] = filter.name_patterns();
    let values: [(&(dyn ToSql + Sync), Type); 10] = [
        (&state, Type::TEXT),
        (&queue, Type::TEXT),
        (&name, Type::TEXT),
        (&tag, Type::TEXT),
        (&error, Type::TEXT),
        (&most, Type::INT8),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let sql = include_str!("given_up_count.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    let Some(row) = rows.first() else {
        return Ok((0, false));
    };
    let (matching, scanned): (i64, i64) = (row.try_get("matching")?, row.try_get("scanned")?);
    session.commit().await?;
    Ok((matching, scanned >= most))
}

/// Jobs of a queue and a name with the same last error.
#[derive(Debug)]
pub(crate) struct LastError {
    pub(crate) queue: String,
    pub(crate) name: String,
    pub(crate) error: String,
    pub(crate) jobs: i64,
}

/// Reads the last errors of matching jobs among the newest that were given up in this state,
/// regardless of the filter's error; also returns whether only some were read.
pub(crate) async fn last_errors(
    pool: &Pool,
    state: State,
    filter: &Filter,
    most: i64,
) -> Result<(Vec<LastError>, bool), StoreError> {
    let session = Session::begin_read(pool).await?;
    let state = format::state_name(state);
    let (since, until) = (filter.since_at(), filter.until_at());
    let [queue, name, tag, key] = filter.name_patterns();
    let values: [(&(dyn ToSql + Sync), Type); 9] = [
        (&state, Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&queue, Type::TEXT),
        (&name, Type::TEXT),
        (&most, Type::INT8),
        (&tag, Type::TEXT),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let sql = include_str!("causes.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    session.commit().await?;
    let (mut errors, mut scanned) = (Vec::new(), 0);
    for row in rows {
        scanned = row.try_get("scanned")?;
        errors.push(LastError {
            queue: row.try_get("queue")?,
            name: row.try_get("name")?,
            error: row.try_get("error")?,
            jobs: row.try_get("jobs")?,
        });
    }
    Ok((errors, scanned >= most))
}

/// Returns which of these jobs were cancelled before.
pub(crate) async fn already_cancelled(
    pool: &Pool,
    ids: &[JobId],
) -> Result<HashSet<JobId>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&ids, Type::INT8_ARRAY)];
    let sql = "SELECT d.id FROM posthaste.dead d
                WHERE d.id = ANY ($1::bigint[]) AND d.state = 'cancelled'::text";
    let rows = session.client()?.query_typed(sql, &values).await?;
    session.commit().await?;
    let ids: Result<HashSet<JobId>, tokio_postgres::Error> =
        rows.iter().map(|row| row.try_get(0).map(JobId)).collect();
    Ok(ids?)
}

/// Deletes given-up jobs, and returns how many.
pub(crate) async fn delete_given_up(session: &Session, ids: &[i64]) -> Result<usize, StoreError> {
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&ids, Type::INT8_ARRAY)];
    let sql = "DELETE FROM posthaste.dead AS d WHERE d.id = ANY ($1::bigint[])";
    let rows = session.client()?.execute_typed(sql, &values).await?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}

/// Deletes given-up jobs in a separate transaction, and returns how many.
pub(crate) async fn delete_jobs(pool: &Pool, ids: &[JobId]) -> Result<usize, StoreError> {
    let session = Session::begin_action(pool).await?;
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let deleted = delete_given_up(&session, &ids).await?;
    session.commit().await?;
    Ok(deleted)
}
