//! The settings of a relay's delivery.

use std::time::Duration;

use posthaste::Backoff;

use crate::message::mapping::Mapping;

/// When a job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Ack {
    /// The destination has confirmed that it has the message.
    #[default]
    Accepted,
    /// The receiver has recorded its effect: it called `posthaste.confirm(delivery_id)`, or
    /// `posthaste.receive(delivery_id)`, which confirms too. Until then the job is held. A message
    /// that is not confirmed in time is sent again with the same id, which counts as an attempt. If
    /// the destination loses everything that it held, jobs are only delayed.
    Confirmed {
        /// How long to wait for the confirmation.
        lease: Duration,
    },
}

/// The handling of a message that may have arrived at a destination that cannot detect duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OnAmbiguous {
    /// Sends it again, which counts as an attempt: delivery at least once.
    #[default]
    Resend,
    /// Discards it with the reason: delivery at most once.
    Discard,
}

/// The default timeout of a batch.
pub(crate) const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct RelayOptions {
    pub(super) mapping: Mapping,
    pub(super) batch: usize,
    pub(super) concurrency: usize,
    pub(super) time_limit: Duration,
    pub(super) ack: Ack,
    pub(super) ordered: bool,
    pub(super) on_ambiguous: OnAmbiguous,
    pub(super) backoff: Backoff,
    pub(super) longest_outage: Duration,
}
