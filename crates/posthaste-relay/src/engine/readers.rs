//! Whether somebody reads the receiver's queues that messages were sent to: what lies in a queue
//! that no worker has looks like success.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::engine::shared::Shared;

/// How often the receiver is asked.
const EVERY: Duration = Duration::from_secs(60);
/// It is asked no longer than this.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks now and then, and says what has changed.
pub(crate) struct ReadersWatch<'a> {
    shared: &'a Shared,
    asked: Option<(Instant, usize)>,
    unread: BTreeSet<String>,
}

impl<'a> ReadersWatch<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            asked: None,
            unread: BTreeSet::new(),
        }
    }

    /// To be called often: the receiver is asked once a minute, and soon where another queue is
    /// sent to.
    pub(crate) async fn look(&mut self) {
        let queues: Vec<String> = self.shared.receiver_queues().names();
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
