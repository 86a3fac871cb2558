//! Statements about single jobs and what became of them (migrations/0014_history.sql, migrations/0015_find.sql).

use tokio_postgres::{Client, Row};

use super::json_text::JsonText;
use super::parameter::typed;
use crate::error::Error;
use crate::history::{Failure, Found};
use crate::job::{JobId, State};

pub(crate) async fn find(client: &Client, id: JobId) -> Result<Option<Found>, Error> {
    let what = "cannot look for a job";
    let row = client
        .query_typed(include_str!("find.sql"), &typed(&[&id.0]))
        .await
        .map_err(Error::postgres(what))?;
    row.first().map(found).transpose()
}

fn found(row: &Row) -> Result<Found, Error> {
    let state = state(row, "state")?;
    let read = || {
        Ok(Found {
            id: JobId(row.try_get("id")?),
            name: row.try_get("name")?,
            queue: row.try_get("queue")?,
            priority: row.try_get("priority")?,
            scheduled_at: row.try_get("scheduled_at")?,
            expires_at: row.try_get("expires_at")?,
            enqueued_at: row.try_get("enqueued_at")?,
            tag: row.try_get("tag")?,
            kwargs: row.try_get::<_, JsonText<'_>>("kwargs")?.0.to_owned(),
            unique_key: row.try_get("unique_key")?,
            ordering_key: row.try_get("ordering_key")?,
            attempt: row.try_get("attempt")?,
            max_attempts: row.try_get("max_attempts")?,
            state,
            last_error: row.try_get("last_error")?,
            worker: row.try_get("worker")?,
            worker_name: row.try_get("worker_name")?,
            claimed_at: row.try_get("claimed_at")?,
            ended_at: row.try_get("ended_at")?,
            delivery_id: row.try_get("delivery_id")?,
        })
    };
    read().map_err(Error::postgres("cannot read a job"))
}

pub(crate) async fn failures(client: &Client, id: JobId) -> Result<Vec<Failure>, Error> {
    let what = "cannot read failed attempts";
    let rows = client
        .query_typed(include_str!("attempts.sql"), &typed(&[&id.0]))
        .await
        .map_err(Error::postgres(what))?;
    let read = |row: &Row| {
        Ok(Failure {
            attempt: row.try_get("attempt")?,
            at: row.try_get("at")?,
            outcome: row.try_get("outcome")?,
            worker: row.try_get("worker")?,
            worker_name: row.try_get("worker_name")?,
            error: row.try_get("error")?,
        })
    };
    let failures: Result<Vec<Failure>, tokio_postgres::Error> = rows.iter().map(read).collect();
    failures.map_err(Error::postgres(what))
}

pub(crate) async fn retry(client: &Client, ids: &[i64]) -> Result<Vec<(JobId, State)>, Error> {
    let what = "cannot retry jobs";
    let rows = client
        .query_typed(include_str!("retry.sql"), &typed(&[&ids]))
        .await
        .map_err(Error::postgres(what))?;
    let read = |row: &Row| {
        let id = row.try_get("job_id").map_err(Error::postgres(what))?;
        Ok((JobId(id), state(row, "is_now")?))
    };
    rows.iter().map(read).collect()
}

fn state(row: &Row, column: &str) -> Result<State, Error> {
    let name: &str = row
        .try_get(column)
        .map_err(Error::postgres("cannot read a job's state"))?;
    State::named(name).ok_or_else(|| Error::invalid("state", format!("{name} is none")))
}
