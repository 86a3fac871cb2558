//! The progress of re-indexes.

use std::fmt;

use posthaste::Counters;
use serde::Serialize;

use super::UnfinishedJobs;

/// The result of one re-index.
#[derive(Serialize)]
pub(super) struct ReindexResult {
    table: String,
    documents: u64,
    completed: i64,
    dead: i64,
    cancelled: i64,
    only_different: bool,
}

impl ReindexResult {
    pub(super) fn new(
        table: &str,
        documents: u64,
        ended: &UnfinishedJobs,
        only_different: bool,
    ) -> Self {
        let all = i64::try_from(documents).unwrap_or(i64::MAX);
        Self {
            table: table.to_owned(),
            documents,
            completed: all - ended.open - ended.given_up - ended.cancelled,
            dead: ended.given_up,
            cancelled: ended.cancelled,
            only_different,
        }
    }
}

impl fmt::Display for ReindexResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.only_different {
            true => "compared, and equal now",
            false => "written again",
        };
        write!(f, "{}: {} {done}", self.table, self.completed)?;
        write_unfinished(f, self.dead, self.cancelled)
    }
}

/// The progress of all re-indexes of a table.
#[derive(Serialize)]
pub(super) struct ReindexProgress {
    table: String,
    left: i64,
    /// Totals of all re-indexes of the table since the installation.
    completed: i64,
    dead: i64,
    cancelled: i64,
}

impl ReindexProgress {
    pub(super) fn new(counters: &Counters, table: &str, queue: &str, left: i64) -> Self {
        let ours = || counters.jobs.iter().filter(|one| one.queue == queue);
        Self {
            table: table.to_owned(),
            left,
            completed: ours().map(|of| of.completed_total).sum(),
            dead: ours().map(|of| of.dead_total + of.expired_total).sum(),
            cancelled: ours().map(|of| of.cancelled_total).sum(),
        }
    }
}

impl fmt::Display for ReindexProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, left, completed) = (&self.table, self.left, self.completed);
        write!(f, "{table}: {left} left, {completed} completed")?;
        write_unfinished(f, self.dead, self.cancelled)
    }
}

fn write_unfinished(f: &mut fmt::Formatter<'_>, dead: i64, cancelled: i64) -> fmt::Result {
    for (count, what) in [(dead, "given up"), (cancelled, "cancelled")] {
        if count > 0 {
            write!(f, ", {count} {what}")?;
        }
    }
    Ok(())
}
