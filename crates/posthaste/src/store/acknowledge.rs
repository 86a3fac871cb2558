//! Claimed jobs are closed: whole batches by one row, or each job in its own way.

use std::time::Duration;

use uuid::Uuid;

use super::link::Link;
use super::{Fence, first, milliseconds, one};
use crate::acknowledge::Settled;
use crate::error::Error;
use crate::retry::Verdict;

/// Closes whole batches as done; returns the positions of those that are to be settled job by job.
pub(crate) async fn close_whole(
    link: &Link,
    batches: &[(Fence, i32)],
) -> Result<Vec<usize>, Error> {
    let slots: Vec<i16> = batches.iter().map(|(fence, _)| fence.slot).collect();
    let numbers: Vec<i64> = batches.iter().map(|(fence, _)| fence.batch).collect();
    let tokens: Vec<Uuid> = batches.iter().map(|(fence, _)| fence.token).collect();
    let jobs: Vec<i32> = batches.iter().map(|(_, jobs)| *jobs).collect();
    let left: Vec<i32> = one(
        link,
        "cannot acknowledge",
        include_str!("close_whole.sql"),
        &[&slots, &numbers, &tokens, &jobs],
    )
    .await?;
    // Arrays of the database begin at 1.
    Ok(left
        .iter()
        .filter_map(|at| usize::try_from(at - 1).ok())
        .collect())
}

/// Puts off all jobs of a batch, unburnt; false when they are to be settled job by job.
pub(crate) async fn put_off(
    link: &Link,
    fence: Fence,
    jobs: i32,
    after: Duration,
    error: Option<&str>,
) -> Result<bool, Error> {
    let (slot, batch, token, after) = (fence.slot, fence.batch, fence.token, milliseconds(after));
    one(
        link,
        "cannot acknowledge",
        include_str!("put_off.sql"),
        &[&slot, &batch, &token, &jobs, &after, &error],
    )
    .await
}

/// Closes jobs of one batch, each in its own way; returns the ids that were still ours.
pub(crate) async fn settle(
    link: &Link,
    fence: Fence,
    settled: &[Settled],
) -> Result<Vec<i64>, Error> {
    let ids: Vec<i64> = settled.iter().map(|one| one.id.0).collect();
    let columns: Vec<Columns<'_>> = settled
        .iter()
        .map(|one| Columns::of(&one.verdict))
        .collect();
    let kinds: Vec<i16> = settled.iter().map(|one| one.verdict.code()).collect();
    let attempts: Vec<Option<i32>> = columns.iter().map(|c| c.attempt).collect();
    let after: Vec<Option<i64>> = columns.iter().map(|c| c.after).collect();
    let until: Vec<Option<jiff::Timestamp>> = columns.iter().map(|c| c.until).collect();
    let states: Vec<Option<&str>> = columns.iter().map(|c| c.state).collect();
    let errors: Vec<Option<&str>> = columns.iter().map(|c| c.error).collect();
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

/// For a handler that finishes its job in its own transaction.
pub(crate) const COMPLETE: &str = include_str!("complete.sql");

/// A verdict, spread over the columns of `posthaste.settle`.
#[derive(Default)]
struct Columns<'a> {
    attempt: Option<i32>,
    after: Option<i64>,
    until: Option<jiff::Timestamp>,
    state: Option<&'a str>,
    error: Option<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(verdict: &'a Verdict) -> Self {
        match verdict {
            Verdict::Done | Verdict::GiveBack => Self::default(),
            Verdict::Park {
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
            Verdict::Bury {
                attempt,
                state,
                error,
            } => Self {
                attempt: *attempt,
                state: Some(state),
                error: Some(error),
                ..Self::default()
            },
            Verdict::Await { until } => Self {
                until: Some(*until),
                ..Self::default()
            },
        }
    }
}
