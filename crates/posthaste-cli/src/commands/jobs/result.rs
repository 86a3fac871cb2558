//! `posthaste jobs cancel` and `retry`: the result for each job.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use posthaste::{Client, JobId, State};
use serde::Serialize;

use super::{JobSelection, job_ids_text};
use crate::terminal::Terminal;

#[derive(Serialize)]
struct JobResult {
    id: i64,
    /// `None`: the job is not known.
    state: Option<String>,
    #[serde(skip)]
    says: DescribeState,
}

/// A function that describes a state after a command.
type DescribeState = fn(&Option<String>) -> String;

impl fmt::Display for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} {}", self.id, (self.says)(&self.state))
    }
}

pub(super) async fn cancel(
    client: &tokio_postgres::Client,
    terminal: &Terminal,
    chosen: &JobSelection,
) -> anyhow::Result<()> {
    let met = match chosen.ids.is_empty() || !chosen.which.has_no_condition() {
        true => cancel_all(client, &unfinished_ids(client, chosen).await?).await?,
        false => cancel_all(client, &chosen.ids).await?,
    };
    let says: DescribeState = match chosen.which.has_no_condition() {
        true => after_cancel,
        // An unaffected job may exist and not match the conditions.
        false => |state| match state {
            None => "does not match, is completed, or does not exist".into(),
            state => after_cancel(state),
        },
    };
    show_each(terminal, met, &chosen.ids, says)
}

fn after_cancel(state: &Option<String>) -> String {
    match state.as_deref() {
        Some("cancelled") => "is cancelled".into(),
        Some("running") => "is running; its worker is asked to end it".into(),
        Some(state) => format!("is already {state}"),
        None => "is completed or does not exist".into(),
    }
}

/// States of jobs that have not ended, in the order of a job's life: a job that changes its state
/// while they are listed is found in the next state.
const UNFINISHED: [State; 7] = [
    State::Scheduled,
    State::Retrying,
    State::Blocked,
    State::Available,
    State::Quarantined,
    State::Running,
    State::Awaiting,
];

/// Returns the jobs that match the conditions, the oldest first.
async fn unfinished_ids(
    client: &tokio_postgres::Client,
    chosen: &JobSelection,
) -> anyhow::Result<Vec<i64>> {
    let mut ids = Vec::new();
    let states = match chosen.which.state {
        Some(state) => {
            ensure!(
                UNFINISHED.contains(&state),
                "{state} jobs have already ended."
            );
            vec![state]
        }
        None => UNFINISHED.to_vec(),
    };
    for state in states {
        let filter = chosen.filter().state(state).oldest_first();
        let jobs = Client::new(client).list(&filter).await?;
        ids.extend(jobs.into_iter().map(|job| job.id.0));
    }
    // A job that changed its state between two lists is in both.
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(chosen.limit() as usize);
    Ok(ids)
}

/// Delay after a call that changed no job.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Cancels jobs in several calls and returns their states. A call that finds jobs in many lanes
/// leaves the rest available, so that one transaction holds few locks. So does a call that meets
/// the running promoter.
pub(in crate::commands) async fn cancel_all(
    client: &tokio_postgres::Client,
    ids: &[i64],
) -> Result<Vec<(JobId, State)>, posthaste::Error> {
    let mut met = Vec::with_capacity(ids.len());
    let mut jobs = Client::new(client);
    let mut left: Vec<JobId> = ids.iter().copied().map(JobId).collect();
    while !left.is_empty() {
        let met_now = jobs.cancel(&left).await?.into_iter();
        let (waiting, ended): (Vec<_>, Vec<_>) =
            met_now.partition(|(_, state)| *state == State::Available);
        if ended.is_empty() && !waiting.is_empty() {
            tokio::time::sleep(RETRY_DELAY).await;
        }
        left = waiting.into_iter().map(|(id, _)| id).collect();
        met.extend(ended);
    }
    Ok(met)
}

pub(super) async fn retry(
    client: &tokio_postgres::Client,
    terminal: &Terminal,
    chosen: &JobSelection,
) -> anyhow::Result<()> {
    let met = Client::new(client).retry_where(&chosen.filter()).await?;
    let stays = |(_, state): &&(JobId, State)| matches!(state, State::Scheduled | State::Retrying);
    let left = met.iter().filter(stays).map(|(id, _)| id.0);
    let left: Vec<i64> = left.collect();
    show_each(terminal, met, &chosen.ids, |state| match state.as_deref() {
        Some("available") => "runs as soon as a worker is free".into(),
        Some("blocked") => "runs when the jobs before it in its order have ended".into(),
        Some("quarantined") => "runs alone as soon as a worker is idle".into(),
        Some("awaiting") => "waits for its confirmation".into(),
        Some(state @ ("running" | "completed")) => format!("is {state}"),
        Some(state @ ("scheduled" | "retrying")) => {
            format!("stays {state}: it does not match the options, or is beyond --limit")
        }
        Some(state) => format!("is already {state}; redrive it to run it again"),
        None => "does not exist, or ended and is no longer kept".into(),
    })?;
    ensure!(left.is_empty(), "not changed: {}.", job_ids_text(&left));
    Ok(())
}

/// Prints the jobs that were found, then those of `ids` that were not. The latter are a failure.
fn show_each(
    terminal: &Terminal,
    met: Vec<(JobId, State)>,
    ids: &[i64],
    says: DescribeState,
) -> anyhow::Result<()> {
    let known: HashSet<i64> = met.iter().map(|(id, _)| id.0).collect();
    let unknown_ids: Vec<i64> = ids
        .iter()
        .copied()
        .filter(|id| !known.contains(id))
        .collect();
    let met = met
        .into_iter()
        .map(|(id, state)| (id.0, Some(state.to_string())));
    let unmet = unknown_ids.iter().map(|id| (*id, None));
    let answers = met.chain(unmet);
    let answers: Vec<JobResult> = answers
        .map(|(id, state)| JobResult { id, state, says })
        .collect();
    terminal.print_results(&answers, "no waiting job matches")?;
    ensure!(
        unknown_ids.is_empty(),
        "not found: {}.",
        job_ids_text(&unknown_ids)
    );
    Ok(())
}
