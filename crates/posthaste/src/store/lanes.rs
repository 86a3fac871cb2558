//! Lanes: those that are known, and the search for others.

use super::reconnecting::ReconnectingClient;
use crate::error::Error;

/// Returns all priorities of a queue that were ever used.
pub(crate) async fn read_lanes(link: &ReconnectingClient, queue: &str) -> Result<Vec<i32>, Error> {
    let rows = link
        .fetch(
            "cannot read lanes",
            "SELECT priority FROM posthaste.lane WHERE queue = $1 ORDER BY priority",
            &[&queue],
        )
        .await?;
    rows.iter()
        .map(|row| row.try_get(0).map_err(Error::postgres("cannot read lanes")))
        .collect()
}

/// Returns priorities of a queue that are not known, mostly one.
pub(crate) async fn discover_lanes(
    link: &ReconnectingClient,
    queue: &str,
    known: &[i32],
) -> Result<Vec<i32>, Error> {
    let rows = link
        .call(
            "cannot discover lanes",
            include_str!("discover.sql"),
            &[&queue, &known],
        )
        .await?;
    rows.iter()
        .map(|row| {
            row.try_get(0)
                .map_err(Error::postgres("cannot discover lanes"))
        })
        .collect()
}
