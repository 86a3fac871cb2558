//! The outcome of a run, as its consumer reports it.

use std::time::Duration;

use jiff::Timestamp;

/// The outcome of one job, reported by its consumer.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The work is done.
    Done,
    /// The attempt failed: it counts, and the job is retried. Without `after`, the queue's back-off
    /// applies.
    Retry {
        /// The delay before the next attempt.
        after: Option<Duration>,
    },
    /// Postpones the job without counting an attempt.
    Snooze {
        /// When it is due again, by the server's clock.
        until: Timestamp,
    },
    /// The job's effect happens elsewhere: it is held until `posthaste.confirm(delivery_id)`
    /// confirms the effect. Without a confirmation it is retried, which counts as an attempt.
    Await {
        /// When to stop waiting for the confirmation.
        until: Timestamp,
    },
    /// Ends the job as discarded, with a reason.
    Discard {
        /// The reason, shown to people.
        reason: String,
    },
}
