//! Where a relay sends: one file each. What is the same for all of them is said here.

use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::Error;
use uuid::Uuid;

use super::message::Message;
use super::reason::{Failure, Reason};

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
        /// How long to wait, where the destination said it; else the back-off decides.
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
        /// What it said.
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
/// has said in its log.
pub(crate) const NO_FILES: &str = "this process may open no more files (ulimit -n)";

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
        Self::full(Reason::of(Failure::Auth, reason))
    }

    pub(crate) fn late(reason: impl Into<String>) -> Self {
        Self::unavailable(Reason::of(Failure::Timeout, reason))
    }

    /// Whether the message waits for a right of the relay's account.
    #[cfg(any(feature = "nats", feature = "smtp", test))]
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Backpressure { reason } if reason.is_denial())
    }

    /// The same for each of them.
    pub(crate) fn for_all(&self, messages: &[Message]) -> Vec<Self> {
        vec![self.clone(); messages.len()]
    }
}

/// A setting of the destination that breaks what the route promises.
#[derive(Clone, Debug, PartialEq)]
pub struct UnsafeSetting {
    /// Its name, as the destination has it; also the name by which it can be allowed.
    pub setting: String,
    /// What is given up with it, and what to set instead.
    pub lost: String,
}

/// Where messages go.
///
/// A destination knows a wire format and a connection and nothing of jobs' lives: the
/// [`Relay`](super::Relay) bounds its time, repeats, and settles. Whatever it is asked may be
/// cancelled at any moment by dropping the future.
pub trait Destination: Send + Sync + 'static {
    /// Its kind and address for people, without secrets: `sidekiq at 127.0.0.1:6379/0`.
    fn label(&self) -> String;

    /// Sends a batch; one answer for each message, in their order. Answers are about the message
    /// itself: one that is refused touches no other.
    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>>;

    /// Why no message to it may have a header of this name: it is the format's own, or would break
    /// it. Asked when a relay begins, of each header that its mapping has; what it says follows
    /// the name.
    fn rejects_header(&self, _name: &str) -> Option<String> {
        None
    }

    /// Why it will never take this message, as far as that is known without asking anybody: what
    /// [`send`](Self::send) refuses it with. For people who look before anything is sent.
    fn rejects(&self, _message: &Message) -> Option<String> {
        None
    }

    /// What is known of a message whose send was cut short, because its time was over or the relay
    /// was to end: what was answered before, or that nobody can know whether it was taken. None:
    /// nothing harmful is known, and it is sent again. Asked once, after the future was dropped.
    fn recall(&self, _id: Uuid) -> Option<Answer> {
        None
    }

    /// How far ahead of its time it takes a message that has one: [`Message::at`] is never further
    /// from now. What has to wait longer waits in Postgres.
    fn ahead(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the receiver can tell a message that is sent twice from two messages. Where it
    /// cannot, a job whose relay died while it had it counts as [`Answer::Ambiguous`].
    fn can_deduplicate(&self) -> bool {
        true
    }

    /// Whether it would take messages now; the error says why not. Asked while it did not answer.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Whether only a message shows that it takes messages again: after a failure one is sent
    /// before all others, and no [`probe`](Self::probe).
    fn tries_one(&self) -> bool {
        false
    }

    /// Whether it will never take anything again: a pipe that nobody reads any more. What is sent
    /// to it waits as if it were down.
    fn is_gone(&self) -> bool {
        false
    }

    /// The receiver's queue that a message goes to, where the receiver knows who reads it.
    fn queue_of<'a>(&'a self, _message: &'a Message) -> Option<&'a str> {
        None
    }

    /// Which of these queues of the receiver no worker reads now; an error where it does not tell.
    /// Asked once a minute of the queues that something was sent to.
    fn unread<'a>(&'a self, _queues: &'a [String]) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Why it can never take what it is sent, as it is set up or as this program was built, where
    /// that is known. Asked before anything is sent, whatever the relay waits for, and again each
    /// time that it is back.
    fn unfit(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// What of its settings lets it lose what it has acknowledged, or take twice what is sent again
    /// after an outage of this length. Asked before anything is sent, and again each time that it
    /// is back, unless the relay waits for effects; an error when it cannot be found out.
    fn unsafe_settings(
        &self,
        _longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
