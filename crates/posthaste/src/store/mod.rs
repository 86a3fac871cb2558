//! The store: one function per statement. With `enqueue`, the only module that speaks SQL.

mod acknowledge;
pub(crate) mod client;
pub(crate) mod counters;
mod duties;
pub(crate) mod holders;
mod lanes;
pub(crate) mod link;
pub(crate) mod migrate;
pub(crate) mod notify;
pub(crate) mod operate;
pub(crate) mod parameter;
pub(crate) mod periodic;
pub(crate) mod place;
mod repeat;
pub(crate) mod restore;
pub(crate) mod roles;
mod schema;
pub(crate) mod session;

use std::sync::Arc;
use std::time::Duration;

use postgres_types::FromSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::error::Error;
use crate::job::{Epochs, Job, JobId};
use crate::json_text::JsonText;
use link::Link;
use parameter::{Parameter, typed};

pub(crate) use acknowledge::{COMPLETE, close_batches, reschedule, settle};
pub(crate) use counters::unworked;
pub(crate) use duties::*;
pub(crate) use lanes::{discover, lanes};

/// What an acknowledgement must carry: the slot and batch of the claim, and its random token. Batch
/// numbers can come again after a crash, tokens cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    pub(crate) slot: i16,
    pub(crate) batch: i64,
    pub(crate) token: Uuid,
}

/// A job as it was claimed, with its fence.
pub(crate) type Claimed = (Fence, Arc<Job>);

/// What a claim handed out: jobs, and those whose rows this version cannot read, with the reason.
pub(crate) struct Claim {
    pub(crate) jobs: Vec<Claimed>,
    pub(crate) unreadable: Vec<(Fence, JobId, String)>,
    /// Another is to follow after this: at once when it met this many expired jobs that it left
    /// before it came to the end, later when the queue's rate stopped it.
    pub(crate) again: Option<Duration>,
}

/// Claims up to `limit` jobs and about `bytes` of arguments: rows for [`read_claim`].
pub(crate) async fn claim(
    link: &Link,
    queue: &str,
    priorities: &[i32],
    worker: i64,
    token: Uuid,
    limit: i32,
    bytes: i64,
) -> Result<Vec<Row>, Error> {
    link.fetch(
        "cannot claim",
        include_str!("claim.sql"),
        &[&queue, &priorities, &worker, &token, &limit, &bytes],
    )
    .await
}

/// What a claim took whose answer was lost: rows for [`read_claim`].
pub(crate) async fn claim_answer(
    link: &Link,
    queue: &str,
    priorities: &[i32],
    worker: i64,
    token: Uuid,
) -> Result<Vec<Row>, Error> {
    link.fetch(
        "cannot look for a claim",
        include_str!("claim_answer.sql"),
        &[&queue, &priorities, &worker, &token],
    )
    .await
}

/// What a claim with this token handed out. An error means that it stands although nobody can work
/// it.
pub(crate) fn read_claim(rows: &[Row], queue: &Arc<str>, token: Uuid) -> Result<Claim, Error> {
    let mut claim = Claim {
        jobs: Vec::with_capacity(rows.len()),
        unreadable: Vec::new(),
        again: None,
    };
    for row in rows {
        if row
            .try_get::<_, Option<i64>>(2)
            .is_ok_and(|id| id.is_none())
        {
            let wait: i64 = row
                .try_get(1)
                .map_err(Error::postgres("cannot read a claim"))?;
            claim.again = Some(Duration::from_millis(wait.unsigned_abs()));
            continue;
        }
        match claimed(row, queue, token) {
            Ok(job) => claim.jobs.push(job),
            Err(error) => {
                let (fence, id) =
                    identity(row, token).map_err(Error::postgres("cannot read a claim"))?;
                claim.unreadable.push((fence, id, error.to_string()));
            }
        }
    }
    Ok(claim)
}

fn identity(row: &Row, token: Uuid) -> Result<(Fence, JobId), tokio_postgres::Error> {
    Ok((
        Fence {
            slot: row.try_get(0)?,
            batch: row.try_get(1)?,
            token,
        },
        JobId(row.try_get(2)?),
    ))
}

/// Claims one job whose worker died: rows for [`read_claim`].
pub(crate) async fn claim_quarantined(
    link: &Link,
    queue: &str,
    worker: i64,
    token: Uuid,
) -> Result<Vec<Row>, Error> {
    link.fetch(
        "cannot claim a quarantined job",
        include_str!("claim_quarantined.sql"),
        &[&queue, &worker, &token],
    )
    .await
}

/// Claims up to this many jobs whose worker died once, and for which a counted attempt ends
/// nothing: rows for [`read_claim`].
pub(crate) async fn claim_quarantined_batch(
    link: &Link,
    queue: &str,
    worker: i64,
    token: Uuid,
    most: usize,
) -> Result<Vec<Row>, Error> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    link.fetch(
        "cannot claim quarantined jobs",
        include_str!("claim_quarantined_batch.sql"),
        &[&queue, &worker, &token, &most],
    )
    .await
}

/// Ends the next job of a queue if it cannot be read.
pub(crate) async fn dead_letter_next(
    link: &Link,
    queue: &str,
    priorities: &[i32],
    worker: i64,
    token: Uuid,
    error: &str,
) -> Result<i64, Error> {
    one(
        link,
        "cannot dead-letter an unreadable job",
        "SELECT posthaste.dead_letter_next($1, $2, $3, $4, $5)",
        &[&queue, &priorities, &worker, &token, &error],
    )
    .await
}

fn claimed(row: &Row, queue: &Arc<str>, token: Uuid) -> Result<Claimed, Error> {
    let read = || -> Result<Claimed, tokio_postgres::Error> {
        let (fence, id) = identity(row, token)?;
        let job = Job {
            id,
            queue: Arc::clone(queue),
            enqueued_at: row.try_get(3)?,
            scheduled_at: row.try_get(4)?,
            expires_at: row.try_get(5)?,
            priority: row.try_get(6)?,
            attempt: row.try_get::<_, i32>(7)?.saturating_add(1),
            max_attempts: row.try_get(8)?,
            crashes: row.try_get(9)?,
            name: row.try_get::<_, &str>(10)?.into(),
            tag: row.try_get::<_, &str>(11)?.into(),
            unique_key: row.try_get::<_, Option<&str>>(12)?.map(Into::into),
            ordering_key: row.try_get::<_, Option<&str>>(13)?.map(Into::into),
            trace: row.try_get::<_, Option<&str>>(14)?.map(Into::into),
            kwargs: row.try_get::<_, JsonText<'_>>(15)?.0.into(),
        };
        Ok((fence, Arc::new(job)))
    };
    read().map_err(Error::postgres("cannot read a claimed job"))
}

/// Queues in which a quarantined job waits.
pub(crate) async fn quarantine_queues(link: &Link) -> Result<Vec<String>, Error> {
    let rows = link
        .fetch(
            "cannot look for quarantined jobs",
            "SELECT posthaste.quarantine_queues()",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            row.try_get(0)
                .map_err(Error::postgres("cannot look for quarantined jobs"))
        })
        .collect()
}

/// A worker begins; its id, and the delivery ids that it gives.
pub(crate) async fn register(
    link: &Link,
    name: &str,
    queues: &[&str],
) -> Result<(i64, Epochs), Error> {
    let what = "cannot register the worker";
    let rows = link
        .fetch(
            what,
            "SELECT o_worker, o_first, o_zero FROM posthaste.register($1, $2::text[])",
            &[&name, &queues],
        )
        .await?;
    let worker = first(&rows, what)?;
    let known = rows[0].try_get(1).and_then(|first| {
        let zero = rows[0].try_get(2)?;
        Ok(Epochs::new(first, zero))
    });
    Ok((worker, known.map_err(Error::postgres(what))?))
}

/// The worker lives; false when it was declared dead.
pub(crate) async fn beat(link: &Link, worker: i64) -> Result<bool, Error> {
    Ok(!link
        .fetch(
            "cannot send a heartbeat",
            include_str!("beat.sql"),
            &[&worker],
        )
        .await?
        .is_empty())
}

/// The worker ends; cleanly when nothing of it could ever have to be rescued.
pub(crate) async fn stop(link: &Link, worker: i64, clean: bool) -> Result<(), Error> {
    link.fetch(
        "cannot sign off",
        include_str!("stop.sql"),
        &[&worker, &clean],
    )
    .await
    .map(drop)
}

/// A wait for the database, at most a hundred years.
pub fn milliseconds(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis())
        .unwrap_or(i64::MAX)
        .min(100 * 365 * 86_400_000)
}

async fn one<T: for<'a> FromSql<'a>>(
    link: &Link,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<T, Error> {
    first(&link.fetch(what, sql, parameters).await?, what)
}

fn first<T: for<'a> FromSql<'a>>(rows: &[Row], what: &'static str) -> Result<T, Error> {
    rows.first()
        .ok_or_else(|| Error::invalid("row", "the database returned none"))?
        .try_get(0)
        .map_err(Error::postgres(what))
}

/// Whether no job of these queues is due, running or blocked.
pub(crate) async fn is_idle(client: &Client, queues: &[String]) -> Result<bool, Error> {
    let sql = include_str!("is_idle.sql");
    let row = client.query_typed(sql, &typed(&[&queues])).await;
    let is_idle = row.and_then(|rows| rows.first().map_or(Ok(true), |row| row.try_get("is_idle")));
    is_idle.map_err(Error::postgres("cannot look whether a queue is idle"))
}
