//! The status of relays, as each writes it to the database.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;

use crate::destination::reason::Failure;

/// The status of a relay since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelayStatus {
    /// Messages that the destination accepted.
    pub accepted: u64,
    /// Messages rejected permanently.
    pub rejected: u64,
    /// Messages that are retried.
    pub retried: u64,
    /// Messages without an answer, or refused by a full destination, counted at each attempt to
    /// send.
    pub unavailable: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// Since when the destination does not answer or has an unsafe setting, by this machine's
    /// clock; `None` otherwise.
    pub down_since: Option<Timestamp>,
    /// Since when the destination has accepted no message, whatever the reason; `None` since it
    /// accepted one.
    pub failing_since: Option<Timestamp>,
    /// How many messages were rejected permanently, by reason; the first few reasons are counted
    /// separately, all others together.
    pub rejections: BTreeMap<String, u64>,
    /// How many messages were not accepted, each time, by the [kind of failure](crate::Failure).
    pub failures: BTreeMap<String, u64>,
}

/// Reasons that are counted separately.
const MAX_REASONS: usize = 10;
/// The stored length of a reason, in characters.
const MAX_REASON_CHARS: usize = 200;
/// The name under which all other reasons are counted.
const OTHER_REASONS: &str = "other reasons";

impl RelayStatus {
    /// Records that a message was not accepted.
    pub(crate) fn record_failing(&mut self) {
        self.failing_since.get_or_insert_with(Timestamp::now);
    }

    /// Counts messages that were not accepted, by the kind of failure.
    pub(crate) fn count_failure(&mut self, failure: Failure, messages: u64) {
        *self.failures.entry(failure.name().to_owned()).or_default() += messages;
    }

    /// Counts a message that was rejected permanently.
    pub(crate) fn count_rejection(&mut self, reason: &str) {
        self.rejected += 1;
        let reason: String = reason
            .chars()
            .filter(|one| *one != '\0')
            .take(MAX_REASON_CHARS)
            .collect();
        let is_known = self.rejections.contains_key(&reason) || self.rejections.len() < MAX_REASONS;
        let reason = if is_known {
            reason
        } else {
            OTHER_REASONS.to_owned()
        };
        *self.rejections.entry(reason).or_default() += 1;
    }
}

/// The state of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayState {
    /// It sends jobs.
    Up,
    /// Its destination does not answer, or has an unsafe setting; the jobs wait in Postgres.
    Down,
    /// Another relay holds the lease; this one takes over if that one stops.
    Standby,
    /// It has not reported for half a minute, though it was not declared dead: it was killed or
    /// stopped, or cannot reach the database.
    Silent,
    /// No relay serves this queue: the last one has ended or died.
    Stopped,
}

impl RelayState {
    /// Returns its name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Standby => "standby",
            Self::Silent => "silent",
            Self::Stopped => "stopped",
        }
    }

    /// Returns the state of this name; `None` for one of a newer version.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Up,
            Self::Down,
            Self::Standby,
            Self::Silent,
            Self::Stopped,
        ];
        all.into_iter().find(|state| state.name() == name)
    }
}

impl fmt::Display for RelayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The last report of a relay.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelayReport {
    /// The name of its route; empty if it has none.
    pub route: String,
    /// The queue whose jobs it sends.
    pub queue: String,
    /// The destination's kind and address, without secrets.
    pub destination: String,
    /// The worker that runs it, as in `posthaste.worker`.
    pub worker: i64,
    /// Its state.
    pub state: RelayState,
    /// Its status.
    pub status: RelayStatus,
    /// When it reported, by the server's clock.
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::{MAX_REASONS, OTHER_REASONS, RelayStatus};

    #[test]
    fn rejections_are_counted_by_reason_up_to_a_limit() {
        let mut status = RelayStatus::default();
        for n in 0..100 {
            status.count_rejection("too large");
            status.count_rejection(&format!("no such user: {n}"));
        }
        assert_eq!(status.rejected, 200);
        assert_eq!(status.rejections["too large"], 100);
        assert_eq!(status.rejections.len(), MAX_REASONS + 1);
        assert_eq!(status.rejections[OTHER_REASONS], 91);
        assert_eq!(status.rejections.values().sum::<u64>(), 200);
    }
}
