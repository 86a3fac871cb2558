//! Statements of the relay (sql/functions/relay.sql).

pub(crate) mod status;

use std::sync::Arc;
use std::time::Duration;

use posthaste::__private::{JsonText, Prose, milliseconds, typed};
use posthaste::consumer::ConsumerContext;
use posthaste::{Error, Job, JobId};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::store::status::{RelayReport, RelayState, RelayStatus};

/// The worker that holds the lease of a queue's ordered relay.
pub(crate) struct LeaseHolder {
    pub(crate) worker: i64,
    /// Jobs of the previous holder, which are sent first.
    pub(crate) quarantined: i64,
}

/// Takes or renews the lease of a queue's ordered relay.
pub(crate) async fn take_lease(
    attendant: &ConsumerContext,
    worker: i64,
    lease: Duration,
) -> Result<LeaseHolder, Error> {
    let what = "cannot acquire the lease of an ordered relay";
    let (queue, lease) = (attendant.queue(), milliseconds(lease));
    let sql = include_str!("store/ordered_relay.sql");
    let rows = attendant
        .fetch(what, sql, &[&queue, &worker, &lease])
        .await?;
    let Some(row) = rows.first() else {
        return Ok(LeaseHolder {
            worker: 0,
            quarantined: 0,
        });
    };
    let read = || {
        Ok(LeaseHolder {
            worker: row.try_get(0)?,
            quarantined: row.try_get(1)?,
        })
    };
    read().map_err(Error::postgres(what))
}

/// The report of a relay.
pub(crate) struct RelayStatusRow<'a> {
    pub(crate) queue: &'a str,
    pub(crate) route: &'a str,
    pub(crate) destination: &'a str,
    pub(crate) state: RelayState,
    pub(crate) status: &'a RelayStatus,
}

pub(crate) async fn write_relay_status(
    attendant: &ConsumerContext,
    worker: i64,
    stats: &RelayStatusRow<'_>,
) -> Result<(), Error> {
    let status = stats.status;
    let error = status.last_error.as_deref().map(storable_error);
    let rejections = serde_json::json!(status.rejections).to_string();
    let failures = serde_json::json!(status.failures).to_string();
    let what = "cannot write the status of a relay";
    let sql = include_str!("store/flush_relay.sql");
    attendant
        .fetch(
            what,
            sql,
            &[
                &worker,
                &stats.queue,
                &stats.route,
                &Prose(Some(stats.destination)),
                &stats.state.name(),
                &status.accepted.cast_signed(),
                &status.rejected.cast_signed(),
                &status.retried.cast_signed(),
                &status.unavailable.cast_signed(),
                &status.down_since,
                &status.failing_since,
                &Prose(error.as_deref()),
                &Prose(Some(&rejections)),
                &Prose(Some(&failures)),
            ],
        )
        .await
        .map(drop)
}

/// Returns an error as text that the database can store, of limited length.
fn storable_error(error: &str) -> String {
    error
        .chars()
        .filter(|letter| *letter != '\0')
        .take(1_000)
        .collect()
}

/// Returns the last reports of the relays of all processes. A report is at most a few seconds old
/// if something changed, and ten seconds if nothing did. The last report of a queue without a relay
/// remains for approximately an hour.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// for relay in posthaste_relay::list_relays(client).await? {
///     println!("{} to {}: {}", relay.queue, relay.destination, relay.state);
/// }
/// # Ok(()) }
/// ```
pub async fn list_relays(client: &Client) -> Result<Vec<RelayReport>, Error> {
    let rows = client
        .query_typed(include_str!("store/relays.sql"), &[])
        .await;
    let read = || rows?.iter().map(report_from_row).collect::<Result<_, _>>();
    read().map_err(Error::postgres("cannot read the status of relays"))
}

fn report_from_row(row: &Row) -> Result<RelayReport, tokio_postgres::Error> {
    let count = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(RelayReport {
        worker: row.try_get(0)?,
        queue: row.try_get(1)?,
        route: row.try_get(2)?,
        destination: row.try_get(3)?,
        state: RelayState::from_name(row.try_get(4)?).unwrap_or(RelayState::Up),
        status: RelayStatus {
            accepted: count(5)?,
            rejected: count(6)?,
            retried: count(7)?,
            unavailable: count(8)?,
            down_since: row.try_get(9)?,
            failing_since: row.try_get(10)?,
            last_error: row.try_get(11)?,
            // A value that cannot be read is from a newer version.
            rejections: serde_json::from_str(row.try_get(13)?).unwrap_or_default(),
            failures: serde_json::from_str(row.try_get(14)?).unwrap_or_default(),
        },
        updated_at: row.try_get(12)?,
    })
}

/// Returns jobs of a queue that could be claimed, approximately in the order of claims, with their
/// delivery ids. Reads whole slots.
pub(crate) async fn list_waiting_jobs(
    client: &Client,
    queue: &str,
    most: i64,
) -> Result<Vec<(Arc<Job>, Uuid)>, Error> {
    let sql = include_str!("store/waiting.sql");
    let rows = client.query_typed(sql, &typed(&[&queue, &most])).await;
    let queue: Arc<str> = queue.into();
    let read = || {
        rows?
            .iter()
            .map(|row| job_from_row(row, &queue))
            .collect::<Result<_, _>>()
    };
    read().map_err(Error::postgres("cannot read waiting jobs"))
}

fn job_from_row(row: &Row, queue: &Arc<str>) -> Result<(Arc<Job>, Uuid), tokio_postgres::Error> {
    let text = |at: usize| {
        row.try_get::<_, Option<&str>>(at)
            .map(|text| text.map(Into::into))
    };
    let (id, name) = (JobId(row.try_get(0)?), row.try_get(8)?);
    let JsonText(kwargs) = row.try_get(13)?;
    let mut job = Job::new(id, name, row.try_get(2)?, kwargs);
    job.queue = Arc::clone(queue);
    job.scheduled_at = row.try_get(3)?;
    job.expires_at = row.try_get(4)?;
    job.priority = row.try_get(5)?;
    job.attempt = row.try_get::<_, i32>(6)?.saturating_add(1);
    job.max_attempts = row.try_get(7)?;
    job.tag = row.try_get::<_, &str>(9)?.into();
    job.unique_key = text(10)?;
    job.ordering_key = text(11)?;
    job.trace = text(12)?;
    Ok((Arc::new(job), row.try_get(1)?))
}
