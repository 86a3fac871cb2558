//! The outcome of a message at its destination.

use std::time::Duration;

use crate::destination::reason::{Failure, Reason};
use crate::message::Message;

/// The outcome of one message.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The destination has it, from this attempt or an earlier one.
    Accepted,
    /// It can never be accepted: the job is discarded, with the reason.
    Rejected {
        /// The reason for people, without arguments and secrets.
        reason: Reason,
    },
    /// It was not accepted this time, because of this message: an attempt is counted.
    Retry {
        /// The reason.
        reason: Reason,
        /// The delay, if the destination sets one; else the backoff decides.
        after: Option<Duration>,
    },
    /// No answer, possibly because of the destination: it is down, blocked or full, or ended while
    /// it had the message. No attempt is counted. The message may have been accepted, so it is sent
    /// again with the same id.
    Unavailable {
        /// The observed error.
        reason: Reason,
    },
    /// The destination answers and accepts no such message for now: a queue is full, a partition
    /// has too few replicas, or the relay's account lacks a permission. No attempt is counted; the
    /// message is sent again shortly. With the reason [`Failure::Auth`] an unordered relay
    /// continues with other messages, because the permission may be missing for this message's
    /// queue alone.
    Backpressure {
        /// The error of the destination.
        reason: Reason,
    },
    /// The destination cannot detect duplicates, and it is unknown whether it has this message: the
    /// route's policy decides.
    Ambiguous {
        /// The observed error.
        reason: Reason,
    },
}

/// The reason of an [`Answer::Backpressure`] that this process causes; the destination has logged
/// it.
pub(crate) const FILE_LIMIT_REACHED: &str = "this process has reached its limit of open files \
                                             (ulimit -n)";

impl Answer {
    pub(crate) fn unavailable(reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        Self::Unavailable { reason }
    }

    pub(crate) fn rejected(reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        Self::Rejected { reason }
    }

    /// Creates an answer that retries the message after the backoff.
    pub(crate) fn retry(reason: impl Into<Reason>) -> Self {
        let (reason, after) = (reason.into(), None);
        Self::Retry { reason, after }
    }

    pub(crate) fn backpressure(reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        Self::Backpressure { reason }
    }

    /// Creates the answer for a permission that the relay's account lacks; the reason names it.
    #[cfg(any(
        feature = "amqp",
        feature = "kafka",
        feature = "redis",
        feature = "smtp",
        test
    ))]
    pub(crate) fn denied(reason: impl Into<String>) -> Self {
        Self::backpressure(Reason::new(Failure::Auth, reason))
    }

    pub(crate) fn timed_out(reason: impl Into<String>) -> Self {
        Self::unavailable(Reason::new(Failure::Timeout, reason))
    }

    /// Returns whether the message waits for a permission of the relay's account.
    #[cfg(any(feature = "nats", feature = "smtp", test))]
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Backpressure { reason } if reason.is_denial())
    }

    /// Returns this answer once for each message.
    pub(crate) fn repeat_for(&self, messages: &[Message]) -> Vec<Self> {
        vec![self.clone(); messages.len()]
    }
}

impl Answer {
    /// Returns the kind of failure; `None` for a message that was accepted.
    pub fn failure(&self) -> Option<Failure> {
        let (reason, otherwise) = match self {
            Self::Accepted => return None,
            Self::Rejected { reason } => (reason, Failure::Refused),
            Self::Retry { reason, .. } => (reason, Failure::Error),
            Self::Unavailable { reason } => (reason, Failure::Other),
            Self::Backpressure { reason } => (reason, Failure::Full),
            Self::Ambiguous { reason } => (reason, Failure::Ambiguous),
        };
        Some(reason.failure.unwrap_or(otherwise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_failure_kind_that_reasons_can_override() {
        let of = |answer: Answer| answer.failure().map(Failure::name);
        assert_eq!(of(Answer::Accepted), None);
        assert_eq!(of(Answer::rejected("no")), Some("refused"));
        assert_eq!(of(Answer::retry("no")), Some("error"));
        assert_eq!(of(Answer::unavailable("no")), Some("other"));
        assert_eq!(of(Answer::backpressure("no")), Some("full"));
        let reason = || Reason::new(Failure::Auth, "no");
        assert_eq!(of(Answer::rejected(reason())), Some("auth"));
        assert_eq!(of(Answer::unavailable(reason())), Some("auth"));
    }
}
