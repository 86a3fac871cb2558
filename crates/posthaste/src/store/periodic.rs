//! Statements of periodic jobs (sql/functions/periodic.sql).

use deadpool_postgres::Client;
use jiff::Timestamp;

use super::one;
use super::parameter::typed;
use super::rebase::BEGIN_WITHOUT_LOCK_TIMEOUT;
use super::reconnecting::ReconnectingClient;
use crate::error::Error;
use crate::json_text::JsonText;
use crate::periodic::Periodic;

/// A periodic job that the leader must check.
pub(crate) struct Due {
    pub(crate) name: String,
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
    pub(crate) missed: String,
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) now: Timestamp,
    /// Its tick is not due yet, but will be before a leader polls again.
    pub(crate) is_ahead: bool,
}

/// Returns periodic jobs whose tick is due or will be within a second, or that no leader has seen
/// yet.
pub(crate) async fn periodic_due(link: &ReconnectingClient) -> Result<Vec<Due>, Error> {
    let what = "cannot find periodic jobs";
    let rows = link
        .fetch(what, include_str!("periodic_due.sql"), &[])
        .await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(Due {
            name: row.try_get("name")?,
            schedule: row.try_get("schedule")?,
            time_zone: row.try_get("time_zone")?,
            missed: row.try_get("missed")?,
            next_at: row.try_get("next_at")?,
            now: row.try_get("now")?,
            is_ahead: row.try_get::<_, Option<bool>>("is_ahead")?.unwrap_or(false),
        })
    };
    let due: Result<Vec<Due>, _> = rows.iter().map(read).collect();
    due.map_err(Error::postgres(what))
}

/// Enqueues ticks and stores the next one, unless another leader did; returns the number of jobs.
pub(crate) async fn tick(
    link: &ReconnectingClient,
    job: &Due,
    ticks: &[Timestamp],
    next: Option<Timestamp>,
) -> Result<i64, Error> {
    one(
        link,
        "cannot enqueue a periodic job",
        "SELECT posthaste.tick($1, $2, $3, $4, $5, $6, $7)",
        &[
            &job.name,
            &job.schedule,
            &job.time_zone,
            &job.next_at,
            &ticks,
            &next,
            &job.now,
        ],
    )
    .await
}

/// Marks the periodic jobs that could not be enqueued, with the reason.
pub(crate) async fn fail_ticks(
    link: &ReconnectingClient,
    failed: &[(Due, String)],
) -> Result<(), Error> {
    let of =
        |part: fn(&Due) -> &str| -> Vec<&str> { failed.iter().map(|(job, _)| part(job)).collect() };
    let (names, schedules) = (of(|job| &job.name), of(|job| &job.schedule));
    let zones = of(|job| &job.time_zone);
    let errors: Vec<&str> = failed.iter().map(|(_, error)| error.as_str()).collect();
    link.fetch(
        "cannot mark a periodic job that failed",
        "SELECT posthaste.fail_ticks($1, $2, $3, $4)",
        &[&names, &schedules, &zones, &errors],
    )
    .await
    .map(drop)
}

/// Defines a periodic job.
pub(crate) async fn put(client: &Client, periodic: &Periodic) -> Result<(), Error> {
    let job = &periodic.job;
    let (missed, kwargs) = (periodic.missed.as_str(), JsonText(&job.kwargs));
    let parameters = typed(&[
        &periodic.name,
        &periodic.schedule,
        &periodic.time_zone,
        &missed,
        &job.name,
        &kwargs,
        &job.queue,
        &job.priority,
        &job.tag,
        &job.max_attempts,
    ]);
    let failed = || Error::postgres("cannot define a periodic job");
    // Another starting worker may define the same job: neither may fail, whatever the settings of
    // the database.
    let (begun, put, committed) = futures_util::future::join3(
        client.batch_execute(BEGIN_WITHOUT_LOCK_TIMEOUT),
        client.execute_typed(include_str!("periodic_put.sql"), &parameters),
        client.batch_execute("COMMIT"),
    )
    .await;
    begun.map_err(failed())?;
    put.map_err(failed())?;
    committed.map_err(failed())
}
