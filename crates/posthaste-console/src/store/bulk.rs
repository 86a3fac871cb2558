//! The rows of actions on all jobs of a filter.

use deadpool_postgres::Pool;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::{Session, StoreError};
use crate::action::{Action, ActionState, Kind, Progress, Step};

/// Ended actions that are kept.
const MAX_ENDED_ACTIONS: i32 = 200;
/// Actions that may run at the same time.
const MAX_RUNNING_ACTIONS: i64 = 20;

/// An action to begin.
pub(crate) struct NewAction<'a> {
    pub(crate) kind: Kind,
    pub(crate) filter: &'a str,
    pub(crate) at_most: i64,
    pub(crate) expected: Option<i64>,
    pub(crate) who: &'a str,
}

/// Begins an action, which this console processes first, and returns its id.
pub(crate) async fn begin_action(
    pool: &Pool,
    me: Uuid,
    begun: &NewAction<'_>,
) -> Result<i32, StoreError> {
    let session = Session::begin_action(pool).await?;
    let client = session.client()?;
    client
        .query_typed(include_str!("bulk_number_lock.sql"), &[])
        .await?;
    let rows = client
        .query_typed(include_str!("bulk_next.sql"), &[])
        .await?;
    let next = rows.first();
    let next = next.ok_or_else(|| StoreError::Failed("the database returned no row".to_owned()))?;
    let (id, at_work): (i32, i64) = (next.try_get("id")?, next.try_get("running")?);
    if at_work >= MAX_RUNNING_ACTIONS {
        let what = format!("{at_work} actions are running: wait for one, or stop one");
        return Err(StoreError::Refused(what));
    }
    let kind = begun.kind.name();
    let values: [(&(dyn ToSql + Sync), Type); 8] = [
        (&id, Type::INT4),
        (&me, Type::UUID),
        (&kind, Type::TEXT),
        (&begun.filter, Type::TEXT),
        (&begun.at_most, Type::INT8),
        (&begun.expected, Type::INT8),
        (&begun.who, Type::TEXT),
        (&MAX_ENDED_ACTIONS, Type::INT4),
    ];
    let sql = include_str!("bulk_start.sql");
    client.execute_typed(sql, &values).await?;
    session.commit().await?;
    Ok(id)
}

/// Reads an action; `None` if it does not exist.
pub(crate) async fn read_action(pool: &Pool, id: i32) -> Result<Option<Action>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let id: [(&(dyn ToSql + Sync), Type); 1] = [(&id, Type::INT4)];
    let sql = include_str!("bulk_one.sql");
    let rows = session.client()?.query_typed(sql, &id).await?;
    session.commit().await?;
    rows.first().map(action_from_row).transpose()
}

/// Reads the running actions, and at most this many of the newest others.
pub(crate) async fn read_actions(
    session: &Session,
    newest: i64,
) -> Result<Vec<Action>, StoreError> {
    let newest: [(&(dyn ToSql + Sync), Type); 1] = [(&newest, Type::INT8)];
    let sql = include_str!("bulk_newest.sql");
    let rows = session.client()?.query_typed(sql, &newest).await?;
    rows.iter().map(action_from_row).collect()
}

/// Returns the actions that this console may continue.
pub(crate) async fn due_actions(pool: &Pool, me: Uuid) -> Result<Vec<i32>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let me: [(&(dyn ToSql + Sync), Type); 1] = [(&me, Type::UUID)];
    let sql = include_str!("bulk_due.sql");
    let rows = session.client()?.query_typed(sql, &me).await?;
    session.commit().await?;
    let ids: Result<Vec<i32>, _> = rows.iter().map(|row| row.try_get("id")).collect();
    Ok(ids?)
}

/// Locks an action for this console until the transaction ends; `None` if it is over or another
/// console processes it.
pub(crate) async fn begin_batch(
    session: &Session,
    id: i32,
    me: Uuid,
) -> Result<Option<Action>, StoreError> {
    if !is_free(session, id).await? {
        return Ok(None);
    }
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&id, Type::INT4), (&me, Type::UUID)];
    let sql = include_str!("bulk_begin.sql");
    let rows = session.client()?.query_typed(sql, &values).await?;
    rows.first().map(action_from_row).transpose()
}

async fn is_free(session: &Session, id: i32) -> Result<bool, StoreError> {
    let id: [(&(dyn ToSql + Sync), Type); 1] = [(&id, Type::INT4)];
    let sql = include_str!("bulk_lock.sql");
    let rows = session.client()?.query_typed(sql, &id).await?;
    let is_free = rows.first().map(|row| row.try_get("is_free")).transpose()?;
    Ok(is_free.unwrap_or(false))
}

/// Records the result of a batch in the transaction of the batch.
pub(crate) async fn record_batch(
    session: &Session,
    id: i32,
    me: Uuid,
    step: &Step,
) -> Result<ActionState, StoreError> {
    let jobs = i64::try_from(step.jobs).unwrap_or(i64::MAX);
    let values: [(&(dyn ToSql + Sync), Type); 7] = [
        (&id, Type::INT4),
        (&me, Type::UUID),
        (&jobs, Type::INT8),
        (&step.place, Type::TEXT),
        (&step.passes, Type::INT4),
        (&step.pass_jobs, Type::INT8),
        (&step.is_over, Type::BOOL),
    ];
    let moved = read_new_state(session, include_str!("bulk_advance.sql"), &values).await?;
    moved.ok_or_else(|| StoreError::Failed(format!("action {id} no longer exists")))
}

/// Records that a batch failed: the action pauses for this many seconds, or fails.
pub(crate) async fn fail_action(
    pool: &Pool,
    id: i32,
    error: &str,
    rest: f64,
    is_end: bool,
) -> Result<Option<ActionState>, StoreError> {
    let session = Session::begin_action(pool).await?;
    let values: [(&(dyn ToSql + Sync), Type); 4] = [
        (&id, Type::INT4),
        (&error, Type::TEXT),
        (&rest, Type::FLOAT8),
        (&is_end, Type::BOOL),
    ];
    let moved = read_new_state(&session, include_str!("bulk_failed.sql"), &values).await?;
    session.commit().await?;
    Ok(moved)
}

/// Stops an action, at once or after its running batch. `None` if it had finished or was stopped
/// before.
pub(crate) async fn stop_action(
    pool: &Pool,
    id: i32,
    who: &str,
) -> Result<Option<ActionState>, StoreError> {
    let session = Session::begin_action(pool).await?;
    let is_free = is_free(&session, id).await?;
    let values: [(&(dyn ToSql + Sync), Type); 3] = [
        (&id, Type::INT4),
        (&who, Type::TEXT),
        (&is_free, Type::BOOL),
    ];
    let moved = read_new_state(&session, include_str!("bulk_stop.sql"), &values).await?;
    session.commit().await?;
    Ok(moved)
}

/// Continues an action that was stopped or failed. `None` if it was neither.
pub(crate) async fn continue_action(
    pool: &Pool,
    id: i32,
    me: Uuid,
) -> Result<Option<ActionState>, StoreError> {
    let session = Session::begin_action(pool).await?;
    let values: [(&(dyn ToSql + Sync), Type); 2] = [(&id, Type::INT4), (&me, Type::UUID)];
    let moved = read_new_state(&session, include_str!("bulk_go_on.sql"), &values).await?;
    session.commit().await?;
    Ok(moved)
}

async fn read_new_state(
    session: &Session,
    sql: &str,
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Option<ActionState>, StoreError> {
    let rows = session.client()?.query_typed(sql, values).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(ActionState {
        progress: progress_from_row(row)?,
        jobs: row.try_get("jobs")?,
    }))
}

fn progress_from_row(row: &Row) -> Result<Progress, StoreError> {
    let state: &str = row.try_get("state")?;
    Progress::from_name(state).ok_or_else(|| StoreError::Schema(format!("no action is {state}")))
}

fn action_from_row(row: &Row) -> Result<Action, StoreError> {
    let kind: &str = row.try_get("action")?;
    let kind = Kind::from_name(kind);
    Ok(Action {
        id: row.try_get("id")?,
        kind: kind.ok_or_else(|| StoreError::Schema("an action is unknown".to_owned()))?,
        filter: row.try_get("filter")?,
        at_most: row.try_get("at_most")?,
        expected: row.try_get("expected")?,
        who: row.try_get("who")?,
        started_at: row.try_get("started_at")?,
        ended_at: row.try_get("ended_at")?,
        progress: progress_from_row(row)?,
        jobs: row.try_get("jobs")?,
        pass_jobs: row.try_get("pass_jobs")?,
        passes: row.try_get("passes")?,
        place: row.try_get("place")?,
        failures: row.try_get("failures")?,
        last_error: row.try_get("last_error")?,
        stopped_by: row.try_get("stopped_by")?,
        is_driven: row.try_get("is_driven")?,
        is_ours: row.try_get("is_ours")?,
    })
}
