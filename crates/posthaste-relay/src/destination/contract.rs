//! The interface of destinations.

use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::Error;
use uuid::Uuid;

use crate::destination::answer::Answer;
use crate::message::Message;

/// The default longest outage: a message whose answer was lost may be sent again after it, and must
/// still be recognized as a duplicate.
pub(crate) const DEFAULT_LONGEST_OUTAGE: Duration = Duration::from_secs(24 * 3600);

/// A setting of the destination that breaks the route's guarantees.
#[derive(Clone, Debug, PartialEq)]
pub struct UnsafeSetting {
    /// The destination's name of the setting, by which it can be allowed.
    pub setting: String,
    /// The guarantee that is lost, and the value to set instead.
    pub lost: String,
}

/// A destination of messages.
///
/// A destination implements a wire format and a connection and knows nothing of the life of jobs:
/// the [`Relay`](crate::Relay) bounds its time, retries, and settles. Each of its futures may be
/// dropped at any moment.
pub trait Destination: Send + Sync + 'static {
    /// Returns its kind and address for people, without secrets: `sidekiq at 127.0.0.1:6379/0`.
    fn label(&self) -> String;

    /// Sends a batch; returns one answer for each message, in their order. An answer concerns its
    /// message alone: a refused message affects no other.
    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>>;

    /// Returns why no message may have a header of this name: the format reserves it, or it would
    /// break the format. Called when a relay starts, for each header of its mapping; the text
    /// follows the name.
    fn header_objection(&self, _name: &str) -> Option<String> {
        None
    }

    /// Returns why it can never accept this message, if that is known without a request: the reason
    /// with which [`send`](Self::send) rejects it. Used for previews.
    fn rejection_reason(&self, _message: &Message) -> Option<String> {
        None
    }

    /// Returns the known outcome of a message whose send was cut short, because its time was over
    /// or the relay had to end: an earlier answer, or that the outcome is unknown. `None` if there
    /// is no such risk, and the message is sent again. Called once, after the future was dropped.
    fn recall_answer(&self, _id: Uuid) -> Option<Answer> {
        None
    }

    /// Returns how far ahead of its time it accepts a message: [`Message::at`] is never further
    /// from now. A message with a later time waits in Postgres.
    fn max_lead_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns whether the receiver can detect that a message was sent twice. If it cannot, a job
    /// whose relay died with it counts as [`Answer::Ambiguous`].
    fn can_deduplicate(&self) -> bool {
        true
    }

    /// Checks whether it would accept messages now; the error is the reason if not. Called while it
    /// does not answer.
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Returns whether only a message shows that it accepts messages again: after a failure one
    /// message is sent before all others, instead of a [`probe`](Self::probe).
    fn probes_with_message(&self) -> bool {
        false
    }

    /// Returns whether it can never accept a message again, such as a pipe without a reader. Its
    /// messages wait as if it were down.
    fn is_gone(&self) -> bool {
        false
    }

    /// Returns the receiver's queue of a message, if the receiver can report the readers of its
    /// queues.
    fn receiver_queue<'a>(&'a self, _message: &'a Message) -> Option<&'a str> {
        None
    }

    /// Returns the queues of the receiver that no worker reads now; an error if the receiver does
    /// not report it. Called once a minute with the queues to which messages were sent.
    fn queues_without_workers<'a>(
        &'a self,
        _queues: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns why it can never accept its messages, because of its configuration or the features
    /// of this program, if that is known. Called before anything is sent, whatever the relay waits
    /// for, and again each time that the destination is back.
    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// Returns the settings that let it lose acknowledged messages, or accept a message twice that
    /// is sent again after an outage of this length; an error if they cannot be read. Called before
    /// anything is sent, and again each time that the destination is back, unless the relay waits
    /// for effects to be confirmed.
    fn unsafe_settings(
        &self,
        _longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
