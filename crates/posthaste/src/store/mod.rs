//! The store: one function per statement. Only this module and `enqueue` execute SQL.

mod acknowledge;
mod claims;
pub(crate) mod client;
pub(crate) mod copied_database;
pub(crate) mod counters;
pub(crate) mod direct_connection;
mod duties;
pub(crate) mod holders;
mod lanes;
pub(crate) mod migrate;
mod mutations;
pub(crate) mod notify;
pub(crate) mod operate;
pub(crate) mod parameter;
pub(crate) mod periodic;
pub(crate) mod place;
pub(crate) mod prose;
pub(crate) mod rebase;
pub(crate) mod reconnecting;
mod repeat;
pub(crate) mod roles;
mod schema;
pub(crate) mod session;

use std::time::Duration;

use postgres_types::FromSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use crate::error::Error;
use crate::job::Epochs;
use parameter::{Parameter, typed};
use prose::Prose;
use reconnecting::ReconnectingClient;

pub(crate) use acknowledge::{COMPLETE, close_batches, reschedule, settle};
pub(crate) use claims::*;
pub(crate) use counters::read_unworked_queues;
pub(crate) use duties::*;
pub(crate) use lanes::{discover_lanes, read_lanes};

/// The identity that an acknowledgement must present: the slot and batch of the claim, and its
/// random token. Batch numbers may be reused after a crash of the server, tokens are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    pub(crate) slot: i16,
    pub(crate) batch: i64,
    pub(crate) token: Uuid,
}

/// Returns the queues in which a quarantined job waits.
pub(crate) async fn quarantine_queues(link: &ReconnectingClient) -> Result<Vec<String>, Error> {
    let rows = link
        .call(
            "cannot find quarantined jobs",
            "SELECT posthaste.quarantine_queues() WHERE posthaste.begin_single_statement()",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            row.try_get(0)
                .map_err(Error::postgres("cannot find quarantined jobs"))
        })
        .collect()
}

/// Registers a worker; returns its id, and the epochs of its delivery ids.
pub(crate) async fn register(
    link: &ReconnectingClient,
    name: &str,
    queues: &[&str],
) -> Result<(i64, Epochs), Error> {
    let (what, site) = ("cannot register the worker", link.site());
    let rows = link
        .fetch(
            what,
            "SELECT o_worker, o_first, o_zero, o_refused, o_registered
               FROM posthaste.register($1, $2::text[], $3, $4::text[])",
            &[&Prose(Some(name)), &queues, &site.name, &site.addresses],
        )
        .await?;
    let refused = rows.first().map(|row| row.try_get(3)).transpose();
    copied_database::fail_if_refused(refused.map_err(Error::postgres(what))?.flatten())?;
    let worker = first(&rows, what)?;
    let registered = rows[0].try_get(4).map_err(Error::postgres(what))?;
    site.record_admission(worker, registered);
    let known = rows[0].try_get(1).and_then(|first| {
        let zero = rows[0].try_get(2)?;
        Ok(Epochs::new(first, zero))
    });
    Ok((worker, known.map_err(Error::postgres(what))?))
}

/// Records a heartbeat. Returns the store that received it, as returned by
/// posthaste.session_identity(), or `None` if the worker was declared dead.
pub(crate) async fn record_heartbeat(
    link: &ReconnectingClient,
    worker: i64,
    failing: Option<&str>,
) -> Result<Option<String>, Error> {
    let what = "cannot send a heartbeat";
    let rows = link
        .fetch(what, include_str!("beat.sql"), &[&worker, &Prose(failing)])
        .await?;
    let here = rows.first().map(|row| row.try_get(0)).transpose();
    here.map_err(Error::postgres(what))
}

/// Returns the claims of which this worker has open jobs in the database, for a worker that may
/// have forgotten some. The server may have crashed before; then this also registers the worker
/// there again.
pub(crate) async fn open_tokens(
    link: &ReconnectingClient,
    worker: i64,
) -> Result<Vec<Uuid>, Error> {
    let what = "cannot find open claims";
    let rejoin = "SELECT posthaste.rejoin($1)";
    let is_here: bool = one(link, what, rejoin, &[&worker]).await?;
    if !is_here {
        return Ok(Vec::new());
    }
    let open = "SELECT posthaste.open_tokens($1)";
    let rows = link.fetch(what, open, &[&worker]).await?;
    rows.iter()
        .map(|row| row.try_get(0).map_err(Error::postgres(what)))
        .collect()
}

/// Deregisters a worker. `clean`: it has nothing that may have to be rescued.
pub(crate) async fn stop(link: &ReconnectingClient, worker: i64, clean: bool) -> Result<(), Error> {
    link.fetch(
        "cannot deregister the worker",
        include_str!("stop.sql"),
        &[&worker, &clean],
    )
    .await
    .map(drop)
}

/// Converts a delay for the database; at most a hundred years.
pub fn milliseconds(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis())
        .unwrap_or(i64::MAX)
        .min(100 * 365 * 86_400_000)
}

async fn one<T: for<'a> FromSql<'a>>(
    link: &ReconnectingClient,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<T, Error> {
    first(&link.fetch(what, sql, parameters).await?, what)
}

/// As [`one`], for a statement that is sent without a block.
async fn one_alone<T: for<'a> FromSql<'a>>(
    link: &ReconnectingClient,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<T, Error> {
    first(&link.call(what, sql, parameters).await?, what)
}

fn first<T: for<'a> FromSql<'a>>(rows: &[Row], what: &'static str) -> Result<T, Error> {
    rows.first()
        .ok_or_else(|| Error::invalid("row", "the database returned none"))?
        .try_get(0)
        .map_err(Error::postgres(what))
}

/// Returns whether no job of these queues is due, running or blocked.
pub(crate) async fn is_idle(client: &Client, queues: &[String]) -> Result<bool, Error> {
    let sql = include_str!("is_idle.sql");
    let row = client.query_typed(sql, &typed(&[&queues])).await;
    let is_idle = row.and_then(|rows| rows.first().map_or(Ok(true), |row| row.try_get("is_idle")));
    is_idle.map_err(Error::postgres("cannot check whether a queue is idle"))
}
