//! Synced tables in the output of `posthaste status`, below the queues.

use std::fmt;

use posthaste_observe::SyncedTable;
use posthaste_observe::format::{age, pluralize};
use serde::Serialize;

use crate::commands::sync::behind::{self, Problem};

/// A row of one synced table.
#[derive(Serialize)]
pub(super) struct SyncRow {
    sync: String,
    table: String,
    /// Changes that are due.
    due: i64,
    /// Changes that are not due yet, and written documents that are not visible in the index yet.
    scheduled: i64,
    /// How long the oldest change has been due and not visible in the index, whichever state its
    /// job has.
    lag_seconds: Option<f64>,
    /// How long a problem has lasted, in seconds.
    failing_seconds: Option<f64>,
    problems: Vec<Problem>,
    /// Jobs of re-indexes.
    reindex: i64,
    reindex_paused: bool,
}

impl SyncRow {
    pub(super) fn new(sync: &SyncedTable) -> Self {
        Self {
            sync: sync.name.clone(),
            table: sync.table.clone(),
            due: sync.due,
            scheduled: sync.scheduled,
            lag_seconds: sync.lag_seconds(),
            failing_seconds: sync.failing_seconds(),
            problems: sync.problems().to_vec(),
            reindex: sync.reindex,
            reindex_paused: sync.reindex_paused,
        }
    }
}

/// The rows as text.
pub(super) struct SyncTable<'a>(pub(super) &'a [SyncRow]);

impl fmt::Display for SyncTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = |of: fn(&SyncRow) -> &str| {
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
            for one in line.problems.iter().take(behind::MAX_SHOWN_REASONS) {
                let jobs = pluralize(one.jobs, "job", "jobs");
                let (since, reason) = (age(one.seconds), &one.reason);
                match one.given_up {
                    false => write!(f, "\n  failing for {since}, {jobs}: {reason}")?,
                    true => write!(f, "\n  {jobs} given up: {reason}")?,
                }
            }
        }
        Ok(())
    }
}
