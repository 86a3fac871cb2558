//! Counters: how many jobs there are of each kind, for metrics and people.

use jiff::Timestamp;
use tokio_postgres::{Client, Row};

use crate::error::Error;
use crate::store::counters as store;

/// What [`counters`] found, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// One for each queue, priority, name and tag of which there is anything to say, in that order.
    pub jobs: Vec<Counter>,
    /// One for each queue and priority in which a job waits for a worker, in that order.
    pub oldest: Vec<Oldest>,
}

/// How many jobs there are of one queue, priority, name and tag.
///
/// The first group are gauges: jobs in each state now, exactly. A job whose `expires_at` has passed counts as what it was until a claim or the leader has
/// found it. The second group, `…_total`, only grows, from the installation on: `done_total`, `failed_total` and `retried_total` are told by workers about
/// once a second, and one that is killed takes its last second along; the others are exact. Beyond ten thousand different ones, sums are kept without their
/// tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counter {
    /// The queue.
    pub queue: String,
    /// The priority; lower runs first.
    pub priority: i32,
    /// The job's name.
    pub name: String,
    /// The job's tag; empty without one.
    pub tag: String,
    /// Due, and waiting for a worker.
    pub claimable: i64,
    /// Due, but a job of their ordering key comes before them.
    pub waiting: i64,
    /// Not due yet, no attempt burnt.
    pub scheduled: i64,
    /// Not due yet, after a failed attempt.
    pub retrying: i64,
    /// In the hands of a worker.
    pub running: i64,
    /// Handed on, waiting to be confirmed.
    pub awaiting: i64,
    /// Their worker died while it had them; they are run alone next.
    pub suspect: i64,
    /// No attempt is left.
    pub dead: i64,
    /// Given up by their handler.
    pub discarded: i64,
    /// Expired before they were handed out.
    pub expired: i64,
    /// Cancelled before they were done.
    pub cancelled: i64,
    /// Jobs that were done.
    pub done_total: i64,
    /// Attempts that failed, and were burnt.
    pub failed_total: i64,
    /// Runs after which the job was put off to be run again, an attempt burnt or not.
    pub retried_total: i64,
    /// Jobs that were kept as dead; those that were redriven since are among them, as below.
    pub dead_total: i64,
    /// Jobs that were kept as discarded.
    pub discarded_total: i64,
    /// Jobs that were kept as expired.
    pub expired_total: i64,
    /// Jobs that were kept as cancelled.
    pub cancelled_total: i64,
}

/// For how long the next job of a queue and priority has waited.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Oldest {
    /// The queue.
    pub queue: String,
    /// The priority.
    pub priority: i32,
    /// Since when that job could have been claimed: it was due, and enqueued.
    pub since: Timestamp,
    /// How long that is, by the server's clock.
    pub seconds: f64,
}

/// How many jobs there are, without reading them: a few milliseconds where millions wait, while a worker with
/// [`Config::maintenance`](crate::Config::maintenance) runs. Without one it reads what has come since the last one ended.
///
/// Call it outside of a transaction: in one whose snapshot is old, jobs that moved meanwhile may be missed.
///
/// ```no_run
/// # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste::Error> {
/// let counters = posthaste::counters(client).await?;
/// let waiting: i64 = counters.jobs.iter().map(|of| of.claimable).sum();
/// let longest = counters.oldest.iter().map(|of| of.seconds).fold(0.0, f64::max);
/// println!("{waiting} jobs wait, the next of them for up to {longest} s");
/// # Ok(()) }
/// ```
pub async fn counters(client: &Client) -> Result<Counters, Error> {
    let (jobs, oldest) = futures_util::future::join(
        client.query_typed(store::COUNTS, &[]),
        client.query_typed(store::OLDEST, &[]),
    )
    .await;
    let read = || {
        Ok(Counters {
            jobs: jobs?.iter().map(counter).collect::<Result<_, _>>()?,
            oldest: oldest?.iter().map(oldest_of).collect::<Result<_, _>>()?,
        })
    };
    read().map_err(Error::postgres("cannot count jobs"))
}

fn counter(row: &Row) -> Result<Counter, tokio_postgres::Error> {
    Ok(Counter {
        queue: row.try_get(0)?,
        priority: row.try_get(1)?,
        name: row.try_get(2)?,
        tag: row.try_get(3)?,
        claimable: row.try_get(4)?,
        waiting: row.try_get(5)?,
        scheduled: row.try_get(6)?,
        retrying: row.try_get(7)?,
        running: row.try_get(8)?,
        awaiting: row.try_get(9)?,
        suspect: row.try_get(10)?,
        dead: row.try_get(11)?,
        discarded: row.try_get(12)?,
        expired: row.try_get(13)?,
        cancelled: row.try_get(14)?,
        done_total: row.try_get(15)?,
        failed_total: row.try_get(16)?,
        retried_total: row.try_get(17)?,
        dead_total: row.try_get(18)?,
        discarded_total: row.try_get(19)?,
        expired_total: row.try_get(20)?,
        cancelled_total: row.try_get(21)?,
    })
}

fn oldest_of(row: &Row) -> Result<Oldest, tokio_postgres::Error> {
    Ok(Oldest {
        queue: row.try_get(0)?,
        priority: row.try_get(1)?,
        since: row.try_get(2)?,
        seconds: row.try_get(3)?,
    })
}
