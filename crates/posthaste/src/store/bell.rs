//! Statements of the bell (migrations/0017_bell.sql). Those that take a client run on the connection that listens.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use super::link::Link;
use super::milliseconds;
use super::parameter::{Parameter, typed};
use crate::error::Error;

/// Listens; the bits of these queues.
pub(crate) async fn listen(client: &Client, queues: &[&str]) -> Result<Vec<i64>, Error> {
    let what = "cannot listen for the bell";
    for channel in [include_str!("listen.sql"), include_str!("listen_rest.sql")] {
        let listening = client.batch_execute(channel).await;
        listening.map_err(Error::postgres(what))?;
    }
    let rows = fetch(client, what, include_str!("bell_of.sql"), &[&queues]).await?;
    rows.iter()
        .map(|row| row.try_get(0).map_err(Error::postgres(what)))
        .collect()
}

/// Rings for a queue, whoever sleeps there.
pub(crate) async fn ring(link: &Link, queue: &str) -> Result<(), Error> {
    link.fetch(
        "cannot ring the bell",
        include_str!("ring_bell.sql"),
        &[&queue],
    )
    .await
    .map(drop)
}

/// Arms bells for so long; whether that could be.
pub(crate) async fn arm(client: &Client, bits: i64, lease: Duration) -> Result<bool, Error> {
    let what = "cannot arm the bell";
    let lease = milliseconds(lease);
    let rows = fetch(client, what, include_str!("arm_bell.sql"), &[&bits, &lease]).await?;
    super::first(&rows, what)
}

/// Puts bells to rest.
pub(crate) async fn rest(client: &Client, bits: i64) -> Result<(), Error> {
    let what = "cannot put the bell to rest";
    fetch(client, what, include_str!("rest_bell.sql"), &[&bits])
        .await
        .map(drop)
}

/// Puts the bell of a queue to rest.
pub(crate) async fn rest_for(client: &Client, queue: &str) -> Result<(), Error> {
    let what = "cannot put the bell to rest";
    fetch(client, what, include_str!("rest_bell_of.sql"), &[&queue])
        .await
        .map(drop)
}

/// Lanes of these queues that seem to have something to be claimed.
pub(crate) async fn stirring(link: &Link, queues: &[&str]) -> Result<Vec<(String, i32)>, Error> {
    let what = "cannot look at queues that sleep";
    let rows = link
        .fetch(what, include_str!("stirring.sql"), &[&queues])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, _>>()
        .map_err(Error::postgres(what))
}

/// One statement by itself.
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
