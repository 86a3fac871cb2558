//! Synced tables, as `posthaste status` shows them below the queues.

use std::collections::BTreeMap;
use std::fmt;

use posthaste::{Counter, Counters};
use serde::Serialize;
use tokio_postgres::Client;

use super::age;
use crate::commands::sync::behind::{self, Problem, behind};
use crate::syncs::reindex_queue;

/// One synced table.
#[derive(Serialize)]
pub(crate) struct Line {
    sync: String,
    table: String,
    /// Changes to be looked at now.
    due: i64,
    /// Changes that are not due yet, and documents that were written and are to be seen.
    scheduled: i64,
    /// For how long the oldest change has been due and not seen in the index, wherever its job is.
    lag_seconds: Option<f64>,
    /// For how long something fails, and why.
    failing_seconds: Option<f64>,
    problems: Vec<Problem>,
    /// Jobs of re-indexes.
    reindex: i64,
    reindex_paused: bool,
}

impl Line {
    pub(crate) fn name(&self) -> &str {
        &self.sync
    }

    pub(crate) fn due(&self) -> i64 {
        self.due
    }

    pub(crate) fn lag_seconds(&self) -> Option<f64> {
        self.lag_seconds
    }

    pub(crate) fn failing_seconds(&self) -> Option<f64> {
        self.failing_seconds
    }

    /// Changes that are not tried any more.
    pub(crate) fn given_up(&self) -> i64 {
        let given_up = self.problems.iter().filter(|one| one.given_up);
        given_up.map(|one| one.jobs).sum()
    }
}

/// All that this user may see.
pub(crate) async fn lines(client: &Client, counters: &Counters) -> anyhow::Result<Vec<Line>> {
    let rows = client.query_typed(include_str!("synced.sql"), &[]).await?;
    // It reads the rows of jobs, so it is asked only where there are some.
    let is_ours = |of: &&Counter| of.queue.starts_with("sync.");
    let left = |of: &Counter| due(of) + of.scheduled + of.retrying + given_up(of);
    let is_left = counters.jobs.iter().filter(is_ours).any(|of| left(of) > 0);
    let mut behind = match is_left {
        true => behind(client).await?,
        false => BTreeMap::new(),
    };
    let lines = rows.iter().map(|row| {
        let sync: String = row.try_get(0)?;
        let behind = behind.remove(&sync).unwrap_or_default();
        let (changes, again) = (posthaste_sync::queue(&sync), reindex_queue(&sync));
        let sum = |queue: &str, jobs: fn(&Counter) -> i64| -> i64 {
            let of_it = counters.jobs.iter().filter(|of| of.queue == queue);
            of_it.map(jobs).sum()
        };
        Ok(Line {
            table: row.try_get(1)?,
            due: sum(&changes, due),
            scheduled: sum(&changes, |of| of.scheduled + of.retrying),
            lag_seconds: behind.seconds,
            failing_seconds: behind.fails_for(),
            problems: behind.problems,
            reindex: sum(&again, |of| due(of) + of.scheduled + of.retrying),
            reindex_paused: row.try_get(2)?,
            sync,
        })
    });
    lines.collect()
}

fn due(of: &Counter) -> i64 {
    of.available + of.blocked + of.running + of.quarantined
}

fn given_up(of: &Counter) -> i64 {
    of.dead + of.discarded + of.expired
}

/// For people.
pub(super) struct Table<'a>(pub(super) &'a [Line]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |of: fn(&Line) -> &str| {
            let widths = self.0.iter().map(|line| of(line).chars().count());
            widths.max().unwrap_or(0).max(5)
        };
        let (names, tables) = (widest(|line| &line.sync), widest(|line| &line.table));
        write!(
            f,
            "{:names$}  {:tables$}  {:>10}  {:>10}  {:>8}  {:>10}",
            "sync", "table", "due", "scheduled", "lag", "re-index"
        )?;
        for line in self.0 {
            let lag = line.lag_seconds.map_or_else(|| "-".to_owned(), age);
            let (due, scheduled, reindex) = (line.due, line.scheduled, line.reindex);
            write!(
                f,
                "\n{:names$}  {:tables$}  {due:>10}  {scheduled:>10}  {lag:>8}  {reindex:>10}",
                line.sync, line.table
            )?;
            if line.reindex_paused {
                write!(f, " paused")?;
            }
            for one in line.problems.iter().take(behind::SHOWN) {
                let (jobs, since, reason) = (one.jobs, age(one.seconds), &one.reason);
                match one.given_up {
                    false => write!(f, "\n  fails for {since}, {jobs} jobs: {reason}")?,
                    true => write!(f, "\n  {jobs} jobs given up: {reason}")?,
                }
            }
        }
        Ok(())
    }
}
