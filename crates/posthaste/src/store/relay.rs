//! Statements of the relay (migrations/0021_relay.sql).

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::json_text::JsonText;
use super::link::Link;
use super::milliseconds;
use super::parameter::typed;
use crate::error::Error;
use crate::job::{Job, JobId};
use crate::relay::{RelayReport, RelayState, RelayStatus};

/// Takes or keeps the drain of a queue: how many jobs of the one before are to come first; nothing when somebody else has it.
pub(crate) async fn drain(
    link: &Link,
    queue: &str,
    worker: i64,
    lease: Duration,
) -> Result<Option<i64>, Error> {
    let what = "cannot take a drain";
    let rows = link
        .fetch(
            what,
            include_str!("drain.sql"),
            &[&queue, &worker, &milliseconds(lease)],
        )
        .await?;
    let suspects = rows.first().map(|row| row.try_get(0)).transpose();
    suspects.map_err(Error::postgres(what))
}

/// What is told of a relay.
pub(crate) struct Told<'a> {
    pub(crate) queue: &'a str,
    pub(crate) route: &'a str,
    pub(crate) destination: &'a str,
    pub(crate) state: RelayState,
    pub(crate) status: &'a RelayStatus,
}

pub(crate) async fn tell(link: &Link, worker: i64, told: &Told<'_>) -> Result<(), Error> {
    let status = told.status;
    let error = status.last_error.as_deref().map(storable);
    link.fetch(
        "cannot tell how a relay goes",
        include_str!("tell_relay.sql"),
        &[
            &worker,
            &told.queue,
            &told.route,
            &told.destination,
            &told.state.name(),
            &status.accepted.cast_signed(),
            &status.refused.cast_signed(),
            &status.later.cast_signed(),
            &status.unanswered.cast_signed(),
            &status.down_since,
            &error,
        ],
    )
    .await
    .map(drop)
}

/// An error as a text of the database, and no book.
fn storable(error: &str) -> String {
    error
        .chars()
        .filter(|letter| *letter != '\0')
        .take(1_000)
        .collect()
}

/// What relays told last.
pub(crate) async fn relays(client: &Client) -> Result<Vec<RelayReport>, Error> {
    let rows = client.query_typed(include_str!("relays.sql"), &[]).await;
    let read = || rows?.iter().map(report).collect::<Result<_, _>>();
    read().map_err(Error::postgres("cannot ask how relays go"))
}

fn report(row: &Row) -> Result<RelayReport, tokio_postgres::Error> {
    let count = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(RelayReport {
        worker: row.try_get(0)?,
        queue: row.try_get(1)?,
        route: row.try_get(2)?,
        destination: row.try_get(3)?,
        state: RelayState::of(row.try_get(4)?).unwrap_or(RelayState::Up),
        status: RelayStatus {
            accepted: count(5)?,
            refused: count(6)?,
            later: count(7)?,
            unanswered: count(8)?,
            down_since: row.try_get(9)?,
            last_error: row.try_get(10)?,
        },
        told_at: row.try_get(11)?,
    })
}

/// Jobs of a queue that could be claimed, about in the order in which they would be, with their delivery ids. Reads whole slots.
pub(crate) async fn waiting(
    client: &Client,
    queue: &str,
    most: i64,
) -> Result<Vec<(Arc<Job>, Uuid)>, Error> {
    let rows = client
        .query_typed(include_str!("waiting.sql"), &typed(&[&queue, &most]))
        .await;
    let queue: Arc<str> = queue.into();
    let read = || {
        rows?
            .iter()
            .map(|row| job(row, &queue))
            .collect::<Result<_, _>>()
    };
    read().map_err(Error::postgres("cannot read what waits"))
}

fn job(row: &Row, queue: &Arc<str>) -> Result<(Arc<Job>, Uuid), tokio_postgres::Error> {
    let job = Job {
        id: JobId(row.try_get(0)?),
        queue: Arc::clone(queue),
        enqueued_at: row.try_get(2)?,
        scheduled_at: row.try_get(3)?,
        expires_at: row.try_get(4)?,
        priority: row.try_get(5)?,
        attempt: row.try_get(6)?,
        max_attempts: row.try_get(7)?,
        crashes: 0,
        name: row.try_get::<_, &str>(8)?.into(),
        tag: row.try_get::<_, &str>(9)?.into(),
        unique_key: row.try_get::<_, Option<&str>>(10)?.map(Into::into),
        ordering_key: row.try_get::<_, Option<&str>>(11)?.map(Into::into),
        kwargs: row.try_get::<_, JsonText<'_>>(12)?.0.into(),
    };
    Ok((Arc::new(job), row.try_get(1)?))
}
