//! What every destination implements.

use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::Error;
use uuid::Uuid;

use crate::destination::answer::Answer;
use crate::message::Message;

/// The longest outage after which a message whose answer was lost is sent again, and must still be
/// recognized as a duplicate, where the route sets none.
pub(crate) const LONGEST_OUTAGE: Duration = Duration::from_secs(24 * 3600);

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
/// [`Relay`](crate::Relay) bounds its time, recent_reasons, and settles. Whatever it is asked may
/// be cancelled at any moment by dropping the future.
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
    /// [`send`](Self::send) refuses it with. For previews.
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
    fn probes_with_message(&self) -> bool {
        false
    }

    /// Whether it will never take anything again: a pipe that nobody reads any more. What is sent
    /// to it waits as if it were down.
    fn is_gone(&self) -> bool {
        false
    }

    /// The receiver's queue that a message goes to, where the receiver knows who reads it.
    fn receiver_queue<'a>(&'a self, _message: &'a Message) -> Option<&'a str> {
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
    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
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
