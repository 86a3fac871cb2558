//! What a run of a job comes to, as its consumer says it.

use std::time::Duration;

use jiff::Timestamp;

/// What a consumer says about one job it was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The work is done.
    Done,
    /// Try again; counts as an attempt. Without `after`, the queue's back-off decides.
    Retry {
        /// How long to wait.
        after: Option<Duration>,
    },
    /// Put off; counts as no attempt.
    Snooze {
        /// Until when, by the server's clock.
        until: Timestamp,
    },
    /// Handed on: the job is held until `posthaste.confirm(delivery_id)` confirms its effect.
    /// Unconfirmed, it is tried again, which counts as an attempt.
    Await {
        /// When to stop waiting for the confirmation.
        until: Timestamp,
    },
    /// Give up: the job ends as discarded, with the reason.
    Discard {
        /// Why; shown to people.
        reason: String,
    },
}
