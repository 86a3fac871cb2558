//! The next jobs of an action on all jobs of a filter.

use jiff::Timestamp;
use posthaste::State;
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};
use crate::filter::Filter;
use crate::format;

/// Given-up jobs that one query reads at most.
const MAX_READ_JOBS: i64 = 20_000;

/// Matching given-up jobs, and the position of the next read; `None` at the end.
pub(crate) struct NextGivenUp {
    pub(crate) ids: Vec<i64>,
    pub(crate) next: Option<(Timestamp, i64)>,
}

/// Reads jobs that ended in this state after this time and id, and not after `until`, the oldest
/// first.
pub(crate) async fn next_given_up(
    session: &Session,
    state: State,
    (at, id): (Timestamp, i64),
    until: Timestamp,
    filter: &Filter,
    limit: usize,
) -> Result<NextGivenUp, StoreError> {
    let (state, error) = (format::state_name(state), filter.error_pattern());
    let ([queue, name, tag, key], before) = (filter.name_patterns(), filter.until_at());
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [(&(dyn ToSql + Sync), Type); 13] = [
        (&state, Type::TEXT),
        (&at, Type::TIMESTAMPTZ),
        (&id, Type::INT8),
        (&until, Type::TIMESTAMPTZ),
        (&queue, Type::TEXT),
        (&name, Type::TEXT),
        (&tag, Type::TEXT),
        (&error, Type::TEXT),
        (&MAX_READ_JOBS, Type::INT8),
        (&most, Type::INT8),
        (&before, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let sql = include_str!("bulk_given_up.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    let (mut ids, mut last, mut end) = (Vec::new(), None, None);
    for row in rows {
        let place: (Timestamp, i64) = (row.try_get("died_at")?, row.try_get("id")?);
        match row.try_get::<_, Option<i64>>("scanned")? {
            Some(scanned) => end = (scanned >= MAX_READ_JOBS).then_some(place),
            None => {
                ids.push(place.1);
                last = Some(place);
            }
        }
    }
    let next = if ids.len() >= limit { last } else { end };
    Ok(NextGivenUp { ids, next })
}

/// Reads quarantined jobs that are not due to run yet, with ids below this one, the newest first,
/// each with the time at which it was enqueued.
pub(crate) async fn quarantined_below(
    session: &Session,
    below: i64,
    filter: &Filter,
    limit: usize,
) -> Result<Vec<(i64, Timestamp)>, StoreError> {
    let (error, since) = (filter.error_pattern(), filter.since_at());
    let ([queue, name, tag, key], until) = (filter.name_patterns(), filter.until_at());
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [(&(dyn ToSql + Sync), Type); 10] = [
        (&below, Type::INT8),
        (&queue, Type::TEXT),
        (&name, Type::TEXT),
        (&tag, Type::TEXT),
        (&error, Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
        (&most, Type::INT8),
        (&until, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let sql = include_str!("bulk_quarantined.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    let read = |row: &tokio_postgres::Row| Ok((row.try_get("id")?, row.try_get("enqueued_at")?));
    rows.iter().map(read).collect()
}

/// Returns which of these jobs were tried since this time.
pub(crate) async fn tried_since(
    session: &Session,
    ids: &[i64],
    since: Timestamp,
) -> Result<Vec<i64>, StoreError> {
    let values: [(&(dyn ToSql + Sync), Type); 2] =
        [(&ids, Type::INT8_ARRAY), (&since, Type::TIMESTAMPTZ)];
    query_ids(session, include_str!("bulk_tried.sql"), &values).await
}

/// Returns which of these jobs are already being cancelled.
pub(crate) async fn being_cancelled(
    session: &Session,
    ids: &[i64],
) -> Result<Vec<i64>, StoreError> {
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&ids, Type::INT8_ARRAY)];
    query_ids(session, include_str!("bulk_told.sql"), &values).await
}

async fn query_ids(
    session: &Session,
    sql: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<i64>, StoreError> {
    let rows = session.client()?.query_typed(sql, values).await?;
    let ids: Result<Vec<i64>, _> = rows.iter().map(|row| row.try_get("id")).collect();
    Ok(ids?)
}
