//! Closes claimed jobs: whole batches by one row, or each job with its own outcome.

use std::time::Duration;

use uuid::Uuid;

use super::prose::Prose;
use super::reconnecting::ReconnectingClient;
use super::{Fence, first, milliseconds, one, one_alone};
use crate::error::Error;
use crate::job::JobId;
use crate::retry::Disposition;

/// Closes whole batches as done; returns the positions of those that must be settled job by job.
pub(crate) async fn close_batches(
    link: &ReconnectingClient,
    batches: &[(Fence, i32)],
) -> Result<Vec<usize>, Error> {
    let slots: Vec<i16> = batches.iter().map(|(fence, _)| fence.slot).collect();
    let numbers: Vec<i64> = batches.iter().map(|(fence, _)| fence.batch).collect();
    let tokens: Vec<Uuid> = batches.iter().map(|(fence, _)| fence.token).collect();
    let jobs: Vec<i32> = batches.iter().map(|(_, jobs)| *jobs).collect();
    let left: Vec<i32> = one_alone(
        link,
        "cannot acknowledge",
        "SELECT posthaste.close_batches($1, $2, $3, $4)",
        &[&slots, &numbers, &tokens, &jobs],
    )
    .await?;
    // Arrays of the database begin at 1.
    Ok(left
        .iter()
        .filter_map(|at| usize::try_from(at - 1).ok())
        .collect())
}

/// Reschedules all jobs of a batch without counting an attempt; returns false if they must be
/// settled job by job.
pub(crate) async fn reschedule(
    link: &ReconnectingClient,
    fence: Fence,
    jobs: i32,
    after: Duration,
    error: Option<&str>,
) -> Result<bool, Error> {
    let (slot, batch, token, after) = (fence.slot, fence.batch, fence.token, milliseconds(after));
    one(
        link,
        "cannot acknowledge",
        include_str!("reschedule.sql"),
        &[&slot, &batch, &token, &jobs, &after, &Prose(error)],
    )
    .await
}

/// Closes jobs of one batch, each with its own outcome; returns the ids that this worker still
/// held.
pub(crate) async fn settle(
    link: &ReconnectingClient,
    fence: Fence,
    outcomes: &[(JobId, &Disposition)],
) -> Result<Vec<i64>, Error> {
    let ids: Vec<i64> = outcomes.iter().map(|(id, _)| id.0).collect();
    let columns: Vec<Columns<'_>> = outcomes
        .iter()
        .map(|(_, disposition)| Columns::new(disposition))
        .collect();
    let kinds: Vec<i16> = outcomes
        .iter()
        .map(|(_, disposition)| disposition.code())
        .collect();
    let attempts: Vec<Option<i32>> = columns.iter().map(|c| c.attempt).collect();
    let after: Vec<Option<i64>> = columns.iter().map(|c| c.after).collect();
    let until: Vec<Option<jiff::Timestamp>> = columns.iter().map(|c| c.until).collect();
    let states: Vec<Option<&str>> = columns.iter().map(|c| c.state).collect();
    let errors: Vec<Prose<'_>> = columns.iter().map(|c| Prose(c.error)).collect();
    let rows = link
        .fetch(
            "cannot acknowledge",
            include_str!("settle.sql"),
            &[
                &fence.slot,
                &fence.batch,
                &fence.token,
                &ids,
                &kinds,
                &attempts,
                &after,
                &until,
                &states,
                &errors,
            ],
        )
        .await?;
    first(&rows, "cannot acknowledge")
}

/// Completes a job in its handler's own transaction.
pub(crate) const COMPLETE: &str = include_str!("complete.sql");

/// The columns of a disposition for `posthaste.settle`.
#[derive(Default)]
struct Columns<'a> {
    attempt: Option<i32>,
    after: Option<i64>,
    until: Option<jiff::Timestamp>,
    state: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Columns<'a> {
    fn new(disposition: &'a Disposition) -> Self {
        match disposition {
            Disposition::Done | Disposition::GiveBack => Self::default(),
            Disposition::Reschedule {
                attempt,
                after,
                until,
                error,
            } => Self {
                attempt: Some(*attempt),
                after: after.map(milliseconds),
                until: *until,
                error: error.as_deref(),
                state: None,
            },
            Disposition::DeadLetter {
                attempt,
                state,
                error,
            } => Self {
                attempt: *attempt,
                state: Some(state),
                error: Some(error),
                ..Self::default()
            },
            Disposition::Await { until } => Self {
                until: Some(*until),
                ..Self::default()
            },
        }
    }
}
