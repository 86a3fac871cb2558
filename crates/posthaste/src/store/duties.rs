//! Statements of maintenance: one function per duty (sql/functions/segments.sql and those after
//! it).

use std::time::Duration;

use uuid::Uuid;

use super::parameter::Parameter;
use super::reconnecting::ReconnectingClient;
use super::{milliseconds, one, one_alone};
use crate::error::Error;

/// Acquires or renews the lease of maintenance.
pub(crate) async fn acquire_lease(
    link: &ReconnectingClient,
    worker: i64,
    lease: Duration,
) -> Result<bool, Error> {
    Ok(!link
        .fetch(
            "cannot acquire the maintenance lease",
            include_str!("lead.sql"),
            &[&worker, &milliseconds(lease)],
        )
        .await?
        .is_empty())
}

/// Returns (worker, beat, stopped) of every worker that may need a rescue.
pub(crate) async fn read_heartbeats(
    link: &ReconnectingClient,
) -> Result<Vec<(i64, i64, bool)>, Error> {
    let rows = link
        .fetch("cannot read heartbeats", include_str!("beats.sql"), &[])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
        .collect::<Result<_, _>>()
        .map_err(Error::postgres("cannot read heartbeats"))
}

/// A job that ended for good without a worker.
pub(crate) struct Death {
    pub(crate) job: i64,
    pub(crate) attempt: i32,
    /// The number of jobs with its state, queue, name and reason.
    pub(crate) jobs: i64,
    pub(crate) state: String,
    pub(crate) queue: String,
    pub(crate) name: String,
    pub(crate) error: Option<String>,
}

/// Returns the jobs that ended since then, and the time up to which they were read; only the first
/// if there are more than `few` of a kind.
pub(crate) async fn read_deaths(
    link: &ReconnectingClient,
    since: Option<i64>,
    few: i64,
) -> Result<(i64, Vec<Death>), Error> {
    let what = "cannot read which jobs ended";
    let sql = include_str!("deaths.sql");
    let rows = link.fetch(what, sql, &[&since, &few]).await?;
    let (mut until, mut deaths) = (0, Vec::new());
    let read = rows.iter().try_for_each(|row| {
        if let Some(read_until) = row.try_get(0)? {
            until = read_until;
            return Ok(());
        }
        deaths.push(Death {
            job: row.try_get(1)?,
            attempt: row.try_get(2)?,
            jobs: row.try_get(3)?,
            state: row.try_get(4)?,
            queue: row.try_get(5)?,
            name: row.try_get(6)?,
            error: row.try_get(7)?,
        });
        Ok(())
    });
    read.map_err(Error::postgres(what))?;
    Ok((until, deaths))
}

/// The positions of the segments (sql/functions/segments.sql, `segments`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentPositions {
    pub(crate) ready_low: i64,
    pub(crate) ready_scan: i64,
    pub(crate) ready_current: i64,
}

pub(crate) async fn read_segment_positions(
    link: &ReconnectingClient,
) -> Result<SegmentPositions, Error> {
    let rows = link
        .fetch(
            "cannot read the state of the segments",
            include_str!("segments.sql"),
            &[],
        )
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::invalid("segments", "the database returned none"))?;
    let read = || {
        Ok(SegmentPositions {
            ready_low: row.try_get(0)?,
            ready_scan: row.try_get(1)?,
            ready_current: row.try_get(2)?,
        })
    };
    read().map_err(Error::postgres("cannot read the state of the segments"))
}

/// The result of [`reclaim`].
pub(crate) enum Reclaim {
    /// No segment is sealed.
    Nothing,
    /// A job of the segment is open; all batches up to this one are closed.
    Open(i64),
    /// A transaction holds a lock on it (empty if only briefly).
    Locked { batch: i64, by: String },
    /// The segment was truncated.
    Truncated,
}

pub(crate) async fn reclaim(
    link: &ReconnectingClient,
    low: i64,
    batches: i32,
) -> Result<Reclaim, Error> {
    let rows = link
        .fetch(
            "cannot reclaim a segment",
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
            "locked" => Reclaim::Locked {
                batch: row.try_get(1)?,
                by: row.try_get(2)?,
            },
            "truncated" => Reclaim::Truncated,
            _ => Reclaim::Nothing,
        })
    };
    read().map_err(Error::postgres("cannot reclaim a segment"))
}

/// The result of a duty, and the holder that blocked the rest (empty if only briefly).
#[derive(Debug)]
pub(crate) struct DutyStep<T> {
    pub(crate) did: T,
    pub(crate) blocker: Option<String>,
}

async fn run_step<T: for<'a> postgres_types::FromSql<'a>>(
    link: &ReconnectingClient,
    what: &'static str,
    sql: &'static str,
    parameters: &[&dyn Parameter],
) -> Result<DutyStep<T>, Error> {
    let rows = link.call(what, sql, parameters).await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::invalid("step", "the database returned none"))?;
    let read = || {
        Ok(DutyStep {
            did: row.try_get(0)?,
            blocker: row.try_get(1)?,
        })
    };
    read().map_err(Error::postgres(what))
}

/// Seals the oldest segment if all of it was claimed; returns whether it did.
pub(crate) async fn seal(link: &ReconnectingClient) -> Result<DutyStep<bool>, Error> {
    run_step(
        link,
        "cannot seal a segment",
        "SELECT o_sealed, o_blocker FROM posthaste.seal() WHERE posthaste.begin_single_statement()",
        &[],
    )
    .await
}

/// Performs one step of compacting the overflow slots.
pub(crate) async fn tidy_overflow(
    link: &ReconnectingClient,
    spent: i64,
    limit: i32,
    bytes: i64,
) -> Result<DutyStep<String>, Error> {
    run_step(
        link,
        "cannot tidy the overflow",
        include_str!("tidy_overflow.sql"),
        &[&spent, &limit, &bytes],
    )
    .await
}

/// Performs one step of compacting the scheduled slots.
pub(crate) async fn tidy_scheduled(
    link: &ReconnectingClient,
    spent: i64,
    bytes: i64,
) -> Result<DutyStep<String>, Error> {
    run_step(
        link,
        "cannot tidy scheduled slots",
        include_str!("tidy_scheduled.sql"),
        &[&spent, &bytes],
    )
    .await
}

/// Removes old failed attempts and done jobs; returns how many volumes were begun.
pub(crate) async fn tidy_history(link: &ReconnectingClient) -> Result<DutyStep<i32>, Error> {
    run_step(
        link,
        "cannot tidy history",
        "SELECT o_turned, o_blocker FROM posthaste.tidy_history() \
          WHERE posthaste.begin_single_statement()",
        &[],
    )
    .await
}

/// Defines duties that return one value, sent in a block (`one`) or without one (`one_alone`).
macro_rules! duty {
    (
        $(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty
        = $run:ident $sql:expr
    ) => {
        $(#[$doc])*
        pub(crate) async fn $name(
            link: &ReconnectingClient,
            $($argument: $kind),*
        ) -> Result<$result, Error> {
            $run(link, concat!("cannot ", stringify!($name)), $sql, &[$(&$argument),*]).await
        }
    };
}
duty!(/// Publishes how far the promoter is going to poll; in how many milliseconds something is
    /// due, at most this many.
    publish_horizon(ahead: i64) -> Option<i64>
    = one include_str!("publish_horizon.sql"));
duty!(/// Promotes due jobs of the current scheduled slot, or carries on with the old one; how many.
    promote(limit: i32, old: bool) -> i64
    = one_alone "SELECT posthaste.promote($1, $2) WHERE posthaste.begin_single_statement()");
duty!(/// Gives turns to jobs with ordering keys and lets them begin; how many were checked.
    advance_ordering(limit: i32) -> i64
    = one_alone "SELECT posthaste.advance_ordering($1) WHERE posthaste.begin_single_statement()");
duty!(/// Starts a new segment when the current one is large, or has this many lanes: rotated,
    /// full, small or busy.
    rotate(bytes: i64, lanes: Option<i32>) -> String
    = one_alone "SELECT posthaste.rotate($1, $2) WHERE posthaste.begin_single_statement()");
duty!(/// Remembers which job ids were drawn; whether there were new ones.
    note_ids() -> bool
    = one_alone "SELECT posthaste.note_ids() WHERE posthaste.begin_single_statement()");
duty!(/// Moves unclaimed jobs out of the ready log; how many.
    move_to_overflow(slot: i32, limit: i32) -> i64
    = one "SELECT posthaste.move_to_overflow($1, $2)");
duty!(/// Moves running jobs out of a segment; how many.
    move_running(slot: i32, batch: i64, limit: i32) -> i64
    = one "SELECT posthaste.move_running($1, $2, $3)");
duty!(/// Takes jobs away from a dead worker; how many.
    rescue(worker: i64, beat: i64) -> i64
    = one "SELECT posthaste.rescue($1, $2)");
duty!(/// Gives back a claim whose answer never came; how many jobs.
    return_claim(worker: i64, token: Uuid) -> i64
    = one "SELECT posthaste.return_claim($1, $2)");
duty!(/// Tries again what was not confirmed in time; how many.
    retry_overdue(limit: i32) -> i64
    = one_alone "SELECT posthaste.retry_overdue($1) WHERE posthaste.begin_single_statement()");
duty!(/// Counts what has come since it was last counted; what had been written by then, none when
    /// there is more to count.
    count_new_jobs(limit: i32, step: i32, bytes: i64, written: &str) -> Option<String>
    = one "SELECT posthaste.count_new_jobs($1, $2, $3, $4)");
duty!(/// Cancels once more what was running when it was cancelled first; how many have ended.
    cancel_again() -> i64
    = one_alone "SELECT posthaste.cancel_again() WHERE posthaste.begin_single_statement()");
duty!(/// Finds expired jobs in one slot; how many.
    expire(slot: i32, limit: i32) -> i64
    = one "SELECT posthaste.expire($1, $2)");
duty!(/// Ends awaited jobs whose confirmation came from a transaction that could not see them await
    /// it; how many.
    confirm_in_flight(limit: i32) -> i64
    = one "SELECT posthaste.confirm_in_flight('infinity', $1)");
duty!(/// Corrects times written by a clock that was ahead; returns how many.
    correct_future_times() -> i64
    = one "SELECT posthaste.correct_future_times()");
duty!(/// Takes the sample of this minute for charts; false if there is one.
    take_sample() -> bool
    = one "SELECT posthaste.take_sample()");
duty!(/// Forgets a page of what was received long ago; how many.
    prune_inbox() -> i64
    = one "SELECT posthaste.prune_inbox()");

/// Removes unused lanes.
pub(crate) async fn forget_lanes(link: &ReconnectingClient) -> Result<(), Error> {
    link.fetch(
        "cannot remove unused lanes",
        "SELECT posthaste.forget_lanes()",
        &[],
    )
    .await
    .map(drop)
}

/// Removes old rows that are not needed.
pub(crate) async fn prune(link: &ReconnectingClient) -> Result<(), Error> {
    link.fetch("cannot prune", "SELECT posthaste.prune()", &[])
        .await
        .map(drop)
}
