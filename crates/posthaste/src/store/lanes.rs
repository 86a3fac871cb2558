//! Lanes: those that were seen, and the search for others.

use super::link::Link;
use crate::error::Error;

/// Priorities of a queue that were ever seen.
pub(crate) async fn lanes(link: &Link, queue: &str) -> Result<Vec<i32>, Error> {
    let rows = link
        .fetch("cannot read lanes", include_str!("lanes.sql"), &[&queue])
        .await?;
    rows.iter()
        .map(|row| row.try_get(0).map_err(Error::postgres("cannot read lanes")))
        .collect()
}

/// One priority of a queue that is not among the known ones.
pub(crate) async fn discover(
    link: &Link,
    queue: &str,
    known: &[i32],
) -> Result<Option<i32>, Error> {
    let rows = link
        .fetch(
            "cannot discover lanes",
            include_str!("discover.sql"),
            &[&queue, &known],
        )
        .await?;
    rows.first()
        .map(|row| {
            row.try_get(0)
                .map_err(Error::postgres("cannot discover lanes"))
        })
        .transpose()
}
