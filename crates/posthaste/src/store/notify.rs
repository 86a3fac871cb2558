//! Statements of the notifier (sql/functions/notify.sql). Those that take a client run on the
//! listening connection.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use super::milliseconds;
use super::parameter::{Parameter, typed};
use super::reconnecting::ReconnectingClient;
use crate::error::Error;

/// Listens for notifications; returns the bits of these queues.
pub(crate) async fn listen(client: &Client, queues: &[&str]) -> Result<Vec<i64>, Error> {
    let what = "cannot listen for notifications";
    for channel in ["LISTEN posthaste", "LISTEN posthaste_rest"] {
        let listening = client.batch_execute(channel).await;
        listening.map_err(Error::postgres(what))?;
    }
    let rows = fetch(client, what, include_str!("listener_bit.sql"), &[&queues]).await?;
    rows.iter()
        .map(|row| row.try_get(0).map_err(Error::postgres(what)))
        .collect()
}

/// Notifies a queue, even if no worker sleeps on it.
pub(crate) async fn notify(link: &ReconnectingClient, queue: &str) -> Result<(), Error> {
    link.fetch(
        "cannot notify",
        "SELECT pg_notify('posthaste', $1)",
        &[&queue],
    )
    .await
    .map(drop)
}

/// Turns notifications on for this long. Returns whether that succeeded, `None` if no notifications
/// may be on.
pub(crate) async fn turn_on(
    client: &Client,
    bits: i64,
    lease: Duration,
) -> Result<Option<bool>, Error> {
    let what = "cannot turn notifications on";
    let lease = milliseconds(lease);
    let rows = fetch(
        client,
        what,
        "SELECT posthaste.notify_on($1, $2::bigint::float8 * interval '1 millisecond')",
        &[&bits, &lease],
    )
    .await?;
    super::first(&rows, what)
}

/// Turns notifications off.
pub(crate) async fn turn_off(client: &Client, bits: i64) -> Result<(), Error> {
    let what = "cannot turn notifications off";
    fetch(client, what, "SELECT posthaste.notify_off($1)", &[&bits])
        .await
        .map(drop)
}

/// Turns the notifications of a queue off.
pub(crate) async fn turn_off_for(client: &Client, queue: &str) -> Result<(), Error> {
    let what = "cannot turn notifications off";
    fetch(
        client,
        what,
        "SELECT posthaste.notify_off(posthaste.listener_bit($1))",
        &[&queue],
    )
    .await
    .map(drop)
}

/// Returns lanes of these queues that may have available jobs.
pub(crate) async fn queues_with_work(
    link: &ReconnectingClient,
    queues: &[&str],
) -> Result<Vec<(String, i32)>, Error> {
    let what = "cannot check sleeping queues";
    let rows = link
        .fetch(what, include_str!("queues_with_work.sql"), &[&queues])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, _>>()
        .map_err(Error::postgres(what))
}

/// Runs one statement.
async fn fetch(
    client: &Client,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<Row>, Error> {
    client
        .query_typed(sql, &typed(parameters))
        .await
        .map_err(Error::postgres(what))
}
