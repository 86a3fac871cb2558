//! Counters of jobs, for metrics and people.

use jiff::Timestamp;

/// The result of [`Client::counters`](crate::Client::counters), at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// The counters of each queue, priority, name and tag with a value other than zero, in that
    /// order.
    pub jobs: Vec<Counter>,
    /// The oldest job of each queue and priority in which a job waits for a worker, in that order.
    pub oldest: Vec<Oldest>,
    /// The paused queues, in order.
    pub paused: Vec<String>,
    /// Whether many jobs came recently and are not counted yet; only for
    /// [`counters_within`](crate::Client::counters_within).
    pub is_partial: bool,
}

/// The numbers of jobs of one queue, priority, name and tag.
///
/// The first group are gauges: the exact number of jobs in each state now. A job whose `expires_at`
/// has passed counts in its former state until a claim or the leader has found it. The second
/// group, `…_total`, only grows, from the installation on. Workers flush `completed_total`,
/// `failed_total` and `retried_total` approximately once a second, and a killed worker loses its
/// last second; the others are exact.
///
/// In each queue and state, and for each total, the first thousand kinds are counted separately.
/// Further ones are counted under the tag `other`, and beyond the same number of names under the
/// name `other`.
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
    /// Due, but another job of their ordering key comes first.
    pub blocked: i64,
    /// Not due yet, no attempt counted.
    pub scheduled: i64,
    /// Not due yet, after a failed attempt.
    pub retrying: i64,
    /// Claimed by a worker.
    pub running: i64,
    /// Waiting for the confirmation of their effect.
    pub awaiting: i64,
    /// Their worker died while it had them; they run alone next.
    pub quarantined: i64,
    /// No attempts left.
    pub dead: i64,
    /// Discarded by their handler.
    pub discarded: i64,
    /// Expired before they were claimed.
    pub expired: i64,
    /// Cancelled before they completed.
    pub cancelled: i64,
    /// Jobs that completed.
    pub completed_total: i64,
    /// Failed attempts that were counted.
    pub failed_total: i64,
    /// Runs after which the job was rescheduled, whether an attempt was counted or not.
    pub retried_total: i64,
    /// Jobs that ended as dead, including those that were redriven since; the same applies below.
    pub dead_total: i64,
    /// Jobs that ended as discarded.
    pub discarded_total: i64,
    /// Jobs that ended as expired.
    pub expired_total: i64,
    /// Jobs that ended as cancelled.
    pub cancelled_total: i64,
}

/// The age of the oldest waiting job of a queue and priority.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Oldest {
    /// The queue.
    pub queue: String,
    /// The priority.
    pub priority: i32,
    /// Since when that job could have been claimed: it was due and enqueued.
    pub since: Timestamp,
    /// The time since then in seconds, by the server's clock.
    pub seconds: f64,
    /// Whether a worker with a heartbeat within the last minute works on the queue.
    pub is_worked: bool,
}
