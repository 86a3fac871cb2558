//! Statements of the engine about counters (sql/functions/marks.sql, sql/functions/counts.sql).

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::reconnecting::ReconnectingClient;
use crate::error::Error;

/// Returns queues that no worker serves and in which a job has waited for longer than this.
pub(crate) async fn read_unworked_queues(
    link: &ReconnectingClient,
    patience: Duration,
) -> Result<Vec<UnworkedQueue>, Error> {
    let what = "cannot find queues without a worker";
    let rows = link.fetch(what, include_str!("oldest.sql"), &[]).await?;
    let read = |row: &Row| -> Result<(UnworkedQueue, bool), tokio_postgres::Error> {
        let (queue, seconds, is_worked) = (row.try_get(0)?, row.try_get(3)?, row.try_get(4)?);
        Ok((UnworkedQueue { queue, seconds }, is_worked))
    };
    let all: Result<Vec<_>, _> = rows.iter().map(read).collect();
    let all = all.map_err(Error::postgres(what))?.into_iter();
    let long = patience.as_secs_f64();
    Ok(all
        .filter(|(one, is_worked)| !is_worked && one.seconds > long)
        .map(|(one, _)| one)
        .collect())
}

/// A queue that no worker serves.
pub(crate) struct UnworkedQueue {
    pub(crate) queue: String,
    /// How long a job has waited there, in seconds.
    pub(crate) seconds: f64,
}

/// The properties by which jobs are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) queue: Arc<str>,
    pub(crate) priority: i32,
    pub(crate) name: Box<str>,
    pub(crate) tag: Box<str>,
}

/// Writes the statistics of this worker: numbers of jobs of a kind, by the names of
/// `posthaste.stats_delta`.
pub(crate) async fn flush(
    link: &ReconnectingClient,
    rows: &[(&Kind, &str, i64)],
) -> Result<(), Error> {
    let queues: Vec<&str> = rows.iter().map(|(kind, ..)| &*kind.queue).collect();
    let priorities: Vec<i32> = rows.iter().map(|(kind, ..)| kind.priority).collect();
    let names: Vec<&str> = rows.iter().map(|(kind, ..)| &*kind.name).collect();
    let tags: Vec<&str> = rows.iter().map(|(kind, ..)| &*kind.tag).collect();
    let whats: Vec<&str> = rows.iter().map(|(_, what, _)| *what).collect();
    let jobs: Vec<i64> = rows.iter().map(|(.., jobs)| *jobs).collect();
    link.fetch(
        "cannot flush statistics",
        "SELECT posthaste.flush_stats($1, $2, $3, $4, $5, $6)",
        &[&queues, &priorities, &names, &tags, &whats, &jobs],
    )
    .await
    .map(drop)
}
