//! Counters: how many jobs there are of each kind, for metrics and people.

use jiff::Timestamp;

/// What [`Client::counters`](crate::Client::counters) found, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// One for each queue, priority, name and tag of which there is anything to say, in that order.
    pub jobs: Vec<Counter>,
    /// One for each queue and priority in which a job waits for a worker, in that order.
    pub oldest: Vec<Oldest>,
    /// The queues that are paused, in order.
    pub paused: Vec<String>,
    /// Many jobs came a moment ago and are not counted yet; only where
    /// [`counters_within`](crate::Client::counters_within) was asked.
    pub is_partial: bool,
}

/// How many jobs there are of one queue, priority, name and tag.
///
/// The first group are gauges: jobs in each state now, exactly. A job whose `expires_at` has passed
/// counts as what it was until a claim or the leader has found it. The second group, `…_total`,
/// only grows, from the installation on: `completed_total`, `failed_total` and `retried_total` are
/// flushed by workers about once a second, and one that is killed takes its last second along; the
/// others are exact.
///
/// In each queue and state, and of each sum, the first thousand kinds are counted apart. Further
/// ones are counted under the tag `other`, and beyond as many names under the name `other`.
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
    pub available: i64,
    /// Due, but a job of their ordering key comes before them.
    pub blocked: i64,
    /// Not due yet, no attempt counted.
    pub scheduled: i64,
    /// Not due yet, after a failed attempt.
    pub retrying: i64,
    /// In the hands of a worker.
    pub running: i64,
    /// Handed on, waiting to be confirmed.
    pub awaiting: i64,
    /// Their worker died while it had them; they are run alone next.
    pub quarantined: i64,
    /// No attempt is left.
    pub dead: i64,
    /// Given up by their handler.
    pub discarded: i64,
    /// Expired before they were handed out.
    pub expired: i64,
    /// Cancelled before they were done.
    pub cancelled: i64,
    /// Jobs that were done.
    pub completed_total: i64,
    /// Attempts that failed, and were counted.
    pub failed_total: i64,
    /// Runs after which the job was rescheduled to be run again, an attempt counted or not.
    pub retried_total: i64,
    /// Jobs that ended as dead; those that were redriven since are among them, as below.
    pub dead_total: i64,
    /// Jobs that ended as discarded.
    pub discarded_total: i64,
    /// Jobs that ended as expired.
    pub expired_total: i64,
    /// Jobs that ended as cancelled.
    pub cancelled_total: i64,
}

/// For how long the next job of a queue and priority has waited.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Whether a worker that has given a sign of life within a minute works on the queue.
    pub is_worked: bool,
}
