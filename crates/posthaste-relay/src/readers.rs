//! Whether somebody reads the receiver's queues that messages were sent to: what lies in a queue
//! that no worker has looks like success.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Shared;
use super::destination::{Answer, Destination};
use super::message::Message;

/// How often the receiver is asked.
const EVERY: Duration = Duration::from_secs(60);
/// It is asked no longer than this.
const LIMIT: Duration = Duration::from_secs(5);
/// This many queues are known at most: a queue may be made for each job.
const QUEUES: usize = 100;

/// The receiver's queues that something was sent to.
#[derive(Debug, Default)]
pub(super) struct SentTo(BTreeSet<String>);

impl SentTo {
    /// Of what the destination has taken.
    pub(super) fn note<'a>(
        &mut self,
        destination: &dyn Destination,
        sent: impl Iterator<Item = (&'a Message, &'a Option<Answer>)>,
    ) {
        for (message, answer) in sent {
            let is_taken = matches!(answer, Some(Answer::Accepted));
            if let Some(queue) = destination.queue_of(message).filter(|_| is_taken)
                && !self.0.contains(queue)
                && self.0.len() < QUEUES
            {
                self.0.insert(queue.to_owned());
            }
        }
    }
}

/// Those of the queues that are not among the ones that somebody reads.
#[cfg(any(feature = "asynq", feature = "bullmq", feature = "sidekiq"))]
pub(super) fn without_readers(
    queues: &[String],
    read: impl Iterator<Item = String>,
) -> Vec<String> {
    let read: BTreeSet<String> = read.collect();
    let unread = queues.iter().filter(|queue| !read.contains(*queue));
    unread.cloned().collect()
}

/// Asks now and then, and says what has changed.
pub(super) struct ReadersWatch<'a> {
    shared: &'a Shared,
    asked: Option<(Instant, usize)>,
    unread: BTreeSet<String>,
}

impl<'a> ReadersWatch<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            asked: None,
            unread: BTreeSet::new(),
        }
    }

    /// To be called often: the receiver is asked once a minute, and soon where another queue is
    /// sent to.
    pub(super) async fn look(&mut self) {
        let queues: Vec<String> = self.shared.sent_to().0.iter().cloned().collect();
        let is_due = match self.asked {
            None => !queues.is_empty(),
            Some((at, known)) => at.elapsed() >= EVERY || queues.len() > known,
        };
        if !is_due || self.shared.status().down_since.is_some() {
            return;
        }
        self.asked = Some((Instant::now(), queues.len()));
        let asked = self.shared.destination.unread(&queues);
        match tokio::time::timeout(LIMIT, asked).await {
            Ok(Ok(unread)) => self.say(unread.into_iter().collect()),
            Ok(Err(error)) => tracing::debug!(error, "who reads the receiver's queues is unknown"),
            Err(error) => tracing::debug!(%error, "who reads the receiver's queues is unknown"),
        }
    }

    fn say(&mut self, unread: BTreeSet<String>) {
        let destination = self.shared.destination.label();
        for receiver_queue in unread.difference(&self.unread) {
            tracing::warn!(
                destination,
                receiver_queue,
                "no worker reads this queue of the receiver; what is sent to it waits there"
            );
        }
        for receiver_queue in self.unread.difference(&unread) {
            tracing::info!(destination, receiver_queue, "a worker reads this queue now");
        }
        self.unread = unread;
    }
}
