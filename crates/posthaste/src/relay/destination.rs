//! Where a relay sends: one file each. What is the same for all of them is said here.

use std::time::Duration;

use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::message::Message;
use crate::error::Error;

/// What became of one message.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The destination has it, from now on or from an earlier attempt on.
    Accepted,
    /// It will never be taken: the job is discarded, with the reason.
    Refused {
        /// Why; shown to people, without arguments and secrets.
        reason: String,
    },
    /// It was not taken this time, and that lies with this message: an attempt is burnt.
    Later {
        /// Why.
        reason: String,
        /// How long to wait, where the destination said it; else the back-off decides.
        after: Option<Duration>,
    },
    /// No answer, and it may lie with the destination: down, blocked, full, gone while it had the message. No attempt is burnt. It may have
    /// been taken, so it is sent again with the same id.
    Unanswered {
        /// What was seen.
        reason: String,
    },
    /// The destination is there and takes nothing like it for now, whichever message it is: a queue is full, a partition has too few replicas. No attempt is burnt; it is sent again in a
    /// moment.
    NotNow {
        /// What it said.
        reason: String,
    },
    /// The destination cannot tell duplicates, and nobody can find out whether it has this one: the route's policy decides.
    Unknown {
        /// What was seen.
        reason: String,
    },
}

impl Answer {
    pub(crate) fn unanswered(reason: impl std::fmt::Display) -> Self {
        Self::Unanswered {
            reason: reason.to_string(),
        }
    }

    #[cfg(any(feature = "smtp", feature = "webhook"))]
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::Refused {
            reason: reason.into(),
        }
    }

    /// The same for each of them.
    pub(crate) fn for_all(&self, messages: &[Message]) -> Vec<Self> {
        vec![self.clone(); messages.len()]
    }
}

/// A setting of the destination that breaks what the route promises.
#[derive(Clone, Debug, PartialEq)]
pub struct Weakness {
    /// Its name, as the destination has it; also the name by which it can be allowed.
    pub setting: String,
    /// What is given up with it, and what to set instead.
    pub lost: String,
}

/// Where messages go.
///
/// A destination knows a wire format and a connection and nothing of jobs' lives: the [`Relay`](super::Relay) bounds its time, repeats, and settles.
/// Whatever it is asked may be cancelled at any moment by dropping the future.
pub trait Destination: Send + Sync + 'static {
    /// Its kind and address for people, without secrets: `sidekiq at 127.0.0.1:6379/0`.
    fn label(&self) -> String;

    /// Sends a batch; one answer for each message, in their order. Answers are about the message itself: one that is refused touches no other.
    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>>;

    /// What is known of a message whose send was cut short, because its time was over or the relay was to end: what was answered before, or that nobody can know
    /// whether it was taken. None: nothing harmful is known, and it is sent again. Asked once, after the future was dropped.
    fn recall(&self, _id: Uuid) -> Option<Answer> {
        None
    }

    /// How far ahead of its time it takes a message that has one: [`Message::at`] is never further from now. What has to wait longer waits in Postgres.
    fn ahead(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a message that is sent twice can be told from two messages, by whoever receives it. Where it cannot, a job whose relay died while it
    /// had it counts as [`Answer::Unknown`].
    fn tells_duplicates(&self) -> bool {
        true
    }

    /// Whether it would take messages now; the error says why not. Asked while it did not answer.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Whether it will never take anything again: a pipe that nobody reads any more. What is sent to it waits as if it were down.
    fn is_gone(&self) -> bool {
        false
    }

    /// What of its settings lets it lose what it has acknowledged, or take twice what is sent again after an outage of this length. Asked before anything is sent, and again each time that
    /// it is back, unless the relay waits for effects; an error when it cannot be found out.
    fn weaknesses(&self, _longest_outage: Duration) -> BoxFuture<'_, Result<Vec<Weakness>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
