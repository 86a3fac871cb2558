//! What became of a message at its destination.

use std::time::Duration;

use crate::destination::reason::{Failure, Reason};
use crate::message::Message;

/// What became of one message.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The destination has it, from now on or from an earlier attempt on.
    Accepted,
    /// It will never be taken: the job is discarded, with the reason.
    Rejected {
        /// Why; shown to people, without arguments and secrets.
        reason: Reason,
    },
    /// It was not taken this time, and that lies with this message: an attempt is counted.
    Retry {
        /// Why.
        reason: Reason,
        /// How long to wait, if the destination says so; else the back-off decides.
        after: Option<Duration>,
    },
    /// No answer, and it may lie with the destination: down, blocked, full, gone while it had the
    /// message. No attempt is counted. It may have been taken, so it is sent again with the same
    /// id.
    Unavailable {
        /// What was seen.
        reason: Reason,
    },
    /// The destination is there and takes nothing like it for now, whichever message it is: a queue
    /// is full, a partition has too few replicas, or the relay's account lacks a right. No attempt
    /// is counted; it is sent again in a moment. With the reason [`Failure::Auth`] other messages
    /// are sent meanwhile, unless the relay is ordered: the right may be missing for this one's
    /// queue alone.
    Backpressure {
        /// The error of the destination.
        reason: Reason,
    },
    /// The destination cannot tell duplicates, and nobody can find out whether it has this one: the
    /// route's policy decides.
    Ambiguous {
        /// What was seen.
        reason: Reason,
    },
}

/// The reason of [`Answer::Backpressure`] where it lies with this process, which the destination
/// has logged.
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

    /// To be tried again after the back-off.
    pub(crate) fn retry(reason: impl Into<Reason>) -> Self {
        let (reason, after) = (reason.into(), None);
        Self::Retry { reason, after }
    }

    pub(crate) fn full(reason: impl Into<Reason>) -> Self {
        let reason = reason.into();
        Self::Backpressure { reason }
    }

    /// The destination does not allow this to the relay's account; the reason says what to grant.
    #[cfg(any(
        feature = "amqp",
        feature = "kafka",
        feature = "redis",
        feature = "smtp",
        test
    ))]
    pub(crate) fn denied(reason: impl Into<String>) -> Self {
        Self::full(Reason::new(Failure::Auth, reason))
    }

    pub(crate) fn late(reason: impl Into<String>) -> Self {
        Self::unavailable(Reason::new(Failure::Timeout, reason))
    }

    /// Whether the message waits for a right of the relay's account.
    #[cfg(any(feature = "nats", feature = "smtp", test))]
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Backpressure { reason } if reason.is_denial())
    }

    /// The same for each of them.
    pub(crate) fn repeat_for(&self, messages: &[Message]) -> Vec<Self> {
        vec![self.clone(); messages.len()]
    }
}

impl Answer {
    /// The kind of failure; nothing for a message that was accepted.
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
        assert_eq!(of(Answer::full("no")), Some("full"));
        let reason = || Reason::new(Failure::Auth, "no");
        assert_eq!(of(Answer::rejected(reason())), Some("auth"));
        assert_eq!(of(Answer::unavailable(reason())), Some("auth"));
    }
}
