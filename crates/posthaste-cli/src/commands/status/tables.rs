//! Synced tables, as `posthaste status` shows them below the queues.

use std::fmt;

use posthaste::{Counter, Counters};
use serde::Serialize;
use tokio_postgres::Client;

use super::{age, oldest};
use crate::syncs::reindex_queue;

/// One synced table.
#[derive(Serialize)]
pub(super) struct Line {
    sync: String,
    table: String,
    /// Changes to be looked at now.
    due: i64,
    /// Changes that are not due yet, and documents that were written and are to be seen.
    scheduled: i64,
    /// How long the next one has waited.
    lag_seconds: Option<f64>,
    /// Jobs of re-indexes.
    reindex: i64,
    reindex_paused: bool,
}

/// All that this user may see.
pub(super) async fn lines(client: &Client, counters: &Counters) -> anyhow::Result<Vec<Line>> {
    let rows = client.query_typed(include_str!("synced.sql"), &[]).await?;
    let lines = rows.iter().map(|row| {
        let sync: String = row.try_get(0)?;
        let (changes, again) = (posthaste::sync::queue(&sync), reindex_queue(&sync));
        let sum = |queue: &str, jobs: fn(&Counter) -> i64| -> i64 {
            let of_it = counters.jobs.iter().filter(|of| of.queue == queue);
            of_it.map(jobs).sum()
        };
        Ok(Line {
            table: row.try_get(1)?,
            due: sum(&changes, due),
            scheduled: sum(&changes, |of| of.scheduled + of.retrying),
            lag_seconds: oldest(counters, |queue, _| queue == changes),
            reindex: sum(&again, |of| due(of) + of.scheduled + of.retrying),
            reindex_paused: row.try_get(2)?,
            sync,
        })
    });
    lines.collect()
}

fn due(of: &Counter) -> i64 {
    of.claimable + of.waiting + of.running + of.suspect
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
        }
        Ok(())
    }
}
