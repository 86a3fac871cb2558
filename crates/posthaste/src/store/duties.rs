//! Statements of maintenance: one function per duty (migrations/0005_ring.sql and those after it).

use std::time::Duration;

use uuid::Uuid;

use super::link::Link;
use super::parameter::Parameter;
use super::{milliseconds, one};
use crate::error::Error;

/// Takes or keeps the lease of maintenance.
pub(crate) async fn lead(link: &Link, worker: i64, lease: Duration) -> Result<bool, Error> {
    Ok(!link
        .fetch(
            "cannot take the lead",
            include_str!("lead.sql"),
            &[&worker, &milliseconds(lease)],
        )
        .await?
        .is_empty())
}

/// (worker, beat, stopped) of every worker that matters to rescue.
pub(crate) async fn beats(link: &Link) -> Result<Vec<(i64, i64, bool)>, Error> {
    let rows = link
        .fetch("cannot read heartbeats", include_str!("beats.sql"), &[])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
        .collect::<Result<_, _>>()
        .map_err(Error::postgres("cannot read heartbeats"))
}

/// Positions of the generations (0005_ring.sql, `ring`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) ready_low: i64,
    pub(crate) ready_scan: i64,
    pub(crate) ready_current: i64,
}

pub(crate) async fn ring(link: &Link) -> Result<Ring, Error> {
    let rows = link
        .fetch("cannot read the ring", include_str!("ring.sql"), &[])
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::invalid("ring", "the database returned none"))?;
    let read = || {
        Ok(Ring {
            ready_low: row.try_get(0)?,
            ready_scan: row.try_get(1)?,
            ready_current: row.try_get(2)?,
        })
    };
    read().map_err(Error::postgres("cannot read the ring"))
}

/// What [`reclaim`] found.
pub(crate) enum Reclaim {
    /// Nothing is sealed.
    Nothing,
    /// A job of the generation is still open; up to this batch all is closed.
    Open(i64),
    /// Somebody holds a lock on it (empty: in passing).
    Blocked { batch: i64, by: String },
    /// The space is back.
    Truncated,
}

pub(crate) async fn reclaim(link: &Link, low: i64, batches: i32) -> Result<Reclaim, Error> {
    let rows = link
        .fetch(
            "cannot reclaim a generation",
            include_str!("reclaim.sql"),
            &[&low, &batches],
        )
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::invalid("reclaim", "the database returned none"))?;
    let read = || -> Result<Reclaim, tokio_postgres::Error> {
        Ok(match row.try_get::<_, &str>(0)? {
            "open" => Reclaim::Open(row.try_get(1)?),
            "blocked" => Reclaim::Blocked {
                batch: row.try_get(1)?,
                by: row.try_get(2)?,
            },
            "truncated" => Reclaim::Truncated,
            _ => Reclaim::Nothing,
        })
    };
    read().map_err(Error::postgres("cannot reclaim a generation"))
}

/// What a duty did, and who kept it from doing more (empty: somebody in passing).
#[derive(Debug)]
pub(crate) struct Step<T> {
    pub(crate) did: T,
    pub(crate) blocker: Option<String>,
}

async fn step<T: for<'a> postgres_types::FromSql<'a>>(
    link: &Link,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<Step<T>, Error> {
    let rows = link.fetch(what, sql, parameters).await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::invalid("step", "the database returned none"))?;
    let read = || {
        Ok(Step {
            did: row.try_get(0)?,
            blocker: row.try_get(1)?,
        })
    };
    read().map_err(Error::postgres(what))
}

/// Seals the oldest generation when all of it was claimed; whether it did.
pub(crate) async fn seal(link: &Link) -> Result<Step<bool>, Error> {
    step(
        link,
        "cannot seal a generation",
        include_str!("seal.sql"),
        &[],
    )
    .await
}

/// One step of keeping the aside slots small.
pub(crate) async fn tidy_aside(link: &Link, spent: i64, limit: i32) -> Result<Step<String>, Error> {
    step(
        link,
        "cannot tidy aside",
        include_str!("tidy_aside.sql"),
        &[&spent, &limit],
    )
    .await
}

/// One step of keeping the parked slots small.
pub(crate) async fn tidy_parked(link: &Link, spent: i64) -> Result<Step<String>, Error> {
    step(
        link,
        "cannot tidy parked slots",
        include_str!("tidy_parked.sql"),
        &[&spent],
    )
    .await
}

/// Forgets failed attempts and done jobs; how many volumes were begun.
pub(crate) async fn tidy_history(link: &Link) -> Result<Step<i32>, Error> {
    step(
        link,
        "cannot tidy history",
        include_str!("tidy_history.sql"),
        &[],
    )
    .await
}

/// Duties that return one value.
macro_rules! duty {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty) => {
        $(#[$doc])*
        pub(crate) async fn $name(link: &Link, $($argument: $kind),*) -> Result<$result, Error> {
            one(link, concat!("cannot ", stringify!($name)), include_str!(concat!(stringify!($name), ".sql")), &[$(&$argument),*]).await
        }
    };
}
duty!(/// Tells enqueuers how far the promoter is going to look; in how many milliseconds something is due, at most so many.
    tell_due(ahead: i64) -> Option<i64>);
duty!(/// Promotes due jobs of the current parked slot, or carries on with the old one; how many.
    promote(limit: i32, old: bool) -> i64);
duty!(/// Lets jobs with ordering keys line up and begin; how many were looked at.
    take_turns(limit: i32) -> i64);
duty!(/// Starts a new generation when the current one is large: rotated, full, small or busy.
    rotate(bytes: i64) -> String);
duty!(/// Remembers which job ids were drawn; whether there were new ones.
    note_ids() -> bool);
duty!(/// Moves unclaimed jobs out of the ring; how many.
    move_aside(slot: i32, limit: i32) -> i64);
duty!(/// Moves running jobs out of a generation; how many.
    hold(slot: i32, batch: i64, limit: i32) -> i64);
duty!(/// Takes jobs away from a dead worker; how many.
    rescue(worker: i64, beat: i64) -> i64);
duty!(/// Gives back a claim whose answer never came; how many jobs.
    return_claim(worker: i64, token: Uuid) -> i64);
duty!(/// Tries again what was not confirmed in time; how many.
    overdue(limit: i32) -> i64);
duty!(/// Counts what has come since it was last counted; what had been written by then, none when there is more to count.
    account(limit: i32, step: i32, bytes: i64, written: &str) -> Option<String>);
duty!(/// Cancels once more what was running when it was cancelled first; how many have ended.
    cancel_again() -> i64);
duty!(/// Finds expired jobs in one slot; how many.
    expire(slot: i32, limit: i32) -> i64);
duty!(/// Ends awaited jobs whose confirmation came from a transaction that could not see them held; how many.
    confirm(limit: i32) -> i64);
duty!(/// Forgets a page of what was received long ago; how many.
    prune_inbox() -> i64);

/// Forgets what nobody needs.
pub(crate) async fn prune(link: &Link) -> Result<(), Error> {
    link.fetch("cannot prune", include_str!("prune.sql"), &[])
        .await
        .map(drop)
}
