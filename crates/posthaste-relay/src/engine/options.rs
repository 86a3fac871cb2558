//! How a relay delivers.

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
    /// `posthaste.receive(delivery_id)`, which does it too. Until then the job is held; what is not
    /// confirmed in time is sent again with the same id, which counts as an attempt. Losing
    /// everything that the destination held costs latency only.
    Confirmed {
        /// How long to wait for the confirmation.
        lease: Duration,
    },
}

/// What becomes of a message of which nobody knows whether a destination that cannot tell
/// duplicates has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OnAmbiguous {
    /// It is sent again, which counts as an attempt: twice rather than never.
    #[default]
    Resend,
    /// It is discarded with the reason: never rather than twice.
    Discard,
}

/// How long sending a batch may take by default.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Options {
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
