//! Lists of jobs, by bounded reads.

use std::collections::HashMap;

use jiff::Timestamp;
use posthaste::State;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};
use crate::filter::Filter;
use crate::format;
use crate::window::{Cursor, Tid};

/// Given-up or completed jobs that one query reads at most.
const MAX_READ_JOBS: i64 = 20_000;
/// Jobs that are due later of which one query reads whole rows at most.
const MAX_READ_DUE_JOBS: i64 = 5_000;

/// A job in a list.
#[derive(Clone, Debug)]
pub(crate) struct JobRow {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) state: State,
    pub(crate) attempt: i32,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) scheduled_at: Timestamp,
    pub(crate) tag: String,
    pub(crate) last_error: Option<String>,
    /// The arguments; `None` if they are long.
    pub(crate) kwargs: Option<String>,
    pub(crate) kwargs_bytes: i32,
    /// When it was given up or completed; `None` if it is neither.
    pub(crate) died_at: Option<Timestamp>,
    /// The position of a list after it.
    pub(crate) place: Cursor,
}

impl JobRow {
    fn from_row(row: &Row, place: Cursor) -> Result<Self, StoreError> {
        let state: String = row.try_get("state")?;
        let state = state.parse();
        let state = state.map_err(|_| StoreError::Schema("a state is unknown".to_owned()))?;
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            queue: row.try_get("queue")?,
            state,
            attempt: row.try_get("attempt")?,
            max_attempts: row.try_get("max_attempts")?,
            enqueued_at: row.try_get("enqueued_at")?,
            scheduled_at: row.try_get("scheduled_at")?,
            tag: row.try_get("tag")?,
            last_error: row.try_get("last_error")?,
            kwargs: row.try_get("kwargs")?,
            kwargs_bytes: row.try_get("kwargs_bytes")?,
            died_at: None,
            place,
        })
    }
}

/// Returns all places that may hold jobs, each from its beginning.
pub(crate) async fn all_places(session: &Session) -> Result<Vec<Cursor>, StoreError> {
    let rows = session
        .client()?
        .query_typed(include_str!("slots.sql"), &[])
        .await?;
    let mut places = vec![Cursor::Running(i64::MAX), Cursor::InFlight(i64::MAX)];
    for row in rows {
        let (slot, pages): (i32, i64) = (row.try_get("slot")?, row.try_get("pages")?);
        let end = Tid {
            page: pages,
            line: 0,
        };
        places.push(Cursor::Slot(slot, end));
    }
    // Rows from the future come first; they were written while the clock was ahead.
    let end = Timestamp::MAX;
    let end = Timestamp::from_second(end.as_second() / 10).unwrap_or(end);
    places.push(Cursor::Completed(i64::MAX));
    places
        .extend(crate::window::GIVEN_UP_STATES.map(|state| Cursor::GivenUp(state, end, i64::MAX)));
    Ok(places)
}

/// Reads the jobs of a slot between two positions, the most recently written first.
pub(crate) async fn read_slot(
    session: &Session,
    slot: i32,
    from: Tid,
    before: Tid,
    filter: &Filter,
    limit: i64,
) -> Result<Vec<JobRow>, StoreError> {
    let sql = match slot {
        6.. => include_str!("scheduled.sql"),
        _ => include_str!("waiting.sql"),
    };
    let (from, before) = (from.to_sql(), before.to_sql());
    let (state, error) = (filter.state.map(format::state_name), filter.error_pattern());
    let (since, until) = (filter.since_at(), filter.until_at());
    let [queue, name_pattern, tag, key] = filter.name_patterns();
    let values: [(&(dyn ToSql + Sync), Type); 13] = [
        (&slot, Type::INT4),
        (&from, Type::TEXT),
        (&before, Type::TEXT),
        (&queue, Type::TEXT),
        (&name_pattern, Type::TEXT),
        (&tag, Type::TEXT),
        (&state, Type::TEXT),
        (&error, Type::TEXT),
        (&limit, Type::INT8),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let rows = session.client()?.query_typed(sql, &values).await?;
    let read = rows.iter().map(|row| {
        let at: String = row.try_get("at")?;
        let nowhere = || StoreError::Failed(format!("{at} is not a position"));
        JobRow::from_row(
            row,
            Cursor::Slot(slot, Tid::from_sql(&at).ok_or_else(nowhere)?),
        )
    });
    read.collect()
}

/// Returns whether a segment has more claims than this.
pub(crate) async fn has_more_claims(session: &Session, claims: i64) -> Result<bool, StoreError> {
    let sql = include_str!("many_claims.sql");
    let values: [(&(dyn ToSql + Sync), Type); 1] = [(&claims, Type::INT8)];
    let row = session.client()?.query_typed_one(sql, &values).await?;
    Ok(row.try_get(0)?)
}

/// Reads jobs of a place that is ordered by id, below its position; only of this many claims if
/// `claims` is given.
pub(crate) async fn read_by_id(
    session: &Session,
    place: &Cursor,
    filter: &Filter,
    limit: i64,
    claims: Option<i64>,
) -> Result<Vec<JobRow>, StoreError> {
    let (sql, below, go_on): (_, _, fn(i64) -> Cursor) = match place {
        Cursor::Running(below) => (include_str!("running.sql"), *below, Cursor::Running),
        Cursor::InFlight(below) => (include_str!("in_flight.sql"), *below, Cursor::InFlight),
        Cursor::Slot(..) | Cursor::GivenUp(..) | Cursor::Due(..) | Cursor::Completed(_) => {
            return Ok(Vec::new());
        }
    };
    let (state, error) = (filter.state.map(format::state_name), filter.error_pattern());
    let (since, until) = (filter.since_at(), filter.until_at());
    let [queue, name_pattern, tag, key] = filter.name_patterns();
    let mut values: Vec<(&(dyn ToSql + Sync), Type)> = vec![
        (&below, Type::INT8),
        (&queue, Type::TEXT),
        (&name_pattern, Type::TEXT),
        (&tag, Type::TEXT),
        (&state, Type::TEXT),
        (&error, Type::TEXT),
        (&limit, Type::INT8),
        (&since, Type::TIMESTAMPTZ),
    ];
    if matches!(place, Cursor::Running(_)) {
        values.push((&claims, Type::INT8));
    }
    let more: [(&(dyn ToSql + Sync), Type); 4] = [
        (&until, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
        (&filter.worker, Type::INT8),
    ];
    values.extend(more);
    let rows = session.client()?.query_typed(sql, &values).await?;
    let read = rows
        .iter()
        .map(|row| JobRow::from_row(row, go_on(row.try_get("id")?)));
    read.collect()
}

/// The result of one read of given-up or completed jobs, or of jobs that are due later.
pub(crate) struct ReadJobs {
    pub(crate) jobs: Vec<JobRow>,
    /// Where the read ended, and whether it reached its limit.
    pub(crate) end: Option<(Timestamp, i64)>,
    pub(crate) is_bounded: bool,
}

/// Reads jobs that were given up in this state at or before this time, the most recent first.
pub(crate) async fn read_given_up(
    session: &Session,
    state: State,
    (at, id): (Timestamp, i64),
    filter: &Filter,
    limit: i64,
) -> Result<ReadJobs, StoreError> {
    let (name, error) = (format::state_name(state), filter.error_pattern());
    let (since, until) = (filter.since_at(), filter.until_at());
    let [queue, name_pattern, tag, key] = filter.name_patterns();
    let values: [(&(dyn ToSql + Sync), Type); 13] = [
        (&name, Type::TEXT),
        (&at, Type::TIMESTAMPTZ),
        (&id, Type::INT8),
        (&queue, Type::TEXT),
        (&name_pattern, Type::TEXT),
        (&tag, Type::TEXT),
        (&error, Type::TEXT),
        (&MAX_READ_JOBS, Type::INT8),
        (&limit, Type::INT8),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let rows = session
        .client()?
        .query_typed(include_str!("given_up.sql"), &values)
        .await?;
    let mut read = ReadJobs::from_rows(&rows, "died_at", MAX_READ_JOBS, |at, id| {
        Cursor::GivenUp(state, at, id)
    })?;
    for job in &mut read.jobs {
        if let Cursor::GivenUp(_, at, _) = &job.place {
            job.died_at = Some(*at);
        }
    }
    Ok(read)
}

/// Reads completed jobs with ids below this one, the newest first.
pub(crate) async fn read_completed(
    session: &Session,
    below: i64,
    filter: &Filter,
    limit: i64,
) -> Result<ReadJobs, StoreError> {
    let (since, until) = (filter.since_at(), filter.until_at());
    let ([queue, name, tag, key], error) = (filter.name_patterns(), filter.error_pattern());
    let values: [(&(dyn ToSql + Sync), Type); 12] = [
        (&below, Type::INT8),
        (&MAX_READ_JOBS, Type::INT8),
        (&queue, Type::TEXT),
        (&name, Type::TEXT),
        (&tag, Type::TEXT),
        (&error, Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
        (&until, Type::TIMESTAMPTZ),
        (&limit, Type::INT8),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
        (&filter.worker, Type::INT8),
    ];
    let sql = include_str!("finished.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    let mut page = ReadJobs::from_rows(&rows, "ended_at", MAX_READ_JOBS, |_, id| {
        Cursor::Completed(id)
    })?;
    let ended: Result<HashMap<i64, Timestamp>, tokio_postgres::Error> = rows
        .iter()
        .map(|row| Ok((row.try_get("id")?, row.try_get("ended_at")?)))
        .collect();
    let ended = ended?;
    for job in &mut page.jobs {
        job.died_at = ended.get(&job.id).copied();
    }
    Ok(page)
}

impl ReadJobs {
    /// Reads rows of jobs, and a row without a name that has the end of the read.
    fn from_rows(
        rows: &[Row],
        column: &str,
        most: i64,
        place: impl Fn(Timestamp, i64) -> Cursor,
    ) -> Result<Self, StoreError> {
        let mut found = Self {
            jobs: Vec::new(),
            end: None,
            is_bounded: false,
        };
        for row in rows {
            let (id, at): (i64, Timestamp) = (row.try_get("id")?, row.try_get(column)?);
            if row.try_get::<_, Option<String>>("name")?.is_some() {
                found.jobs.push(JobRow::from_row(row, place(at, id))?);
                continue;
            }
            found.end = Some((at, id));
            found.is_bounded = i64::from(row.try_get::<_, i32>("kwargs_bytes")?) >= most;
        }
        Ok(found)
    }
}

/// Reads jobs that are due after this time, the next first.
pub(crate) async fn read_due(
    session: &Session,
    (at, id): (Timestamp, i64),
    filter: &Filter,
    limit: i64,
) -> Result<ReadJobs, StoreError> {
    let (state, error) = (filter.state.map(format::state_name), filter.error_pattern());
    let (since, until) = (filter.since_at(), filter.until_at());
    let [queue, name_pattern, tag, key] = filter.name_patterns();
    let values: [(&(dyn ToSql + Sync), Type); 13] = [
        (&at, Type::TIMESTAMPTZ),
        (&id, Type::INT8),
        (&queue, Type::TEXT),
        (&name_pattern, Type::TEXT),
        (&tag, Type::TEXT),
        (&state, Type::TEXT),
        (&error, Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
        (&MAX_READ_DUE_JOBS, Type::INT8),
        (&limit, Type::INT8),
        (&until, Type::TIMESTAMPTZ),
        (&key, Type::TEXT),
        (&filter.priority, Type::INT4),
    ];
    let sql = include_str!("due.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    ReadJobs::from_rows(&rows, "scheduled_at", MAX_READ_DUE_JOBS, Cursor::Due)
}
