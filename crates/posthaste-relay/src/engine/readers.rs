//! Whether somebody reads the receiver's queues that messages were sent to: messages in a queue
//! without a worker seem delivered.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::engine::shared::Shared;

/// How often the receiver is asked.
const EVERY: Duration = Duration::from_secs(60);
/// It is asked no longer than this.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks now and then, and says what has changed.
pub(crate) struct ConsumerWatch<'a> {
    shared: &'a Shared,
    asked: Option<(Instant, usize)>,
    unread: BTreeSet<String>,
}

impl<'a> ConsumerWatch<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            asked: None,
            unread: BTreeSet::new(),
        }
    }

    /// To be called often: the receiver is asked once a minute, and soon where another queue is
    /// sent to.
    pub(crate) async fn poll(&mut self) {
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
            Ok(Ok(unread)) => self.log_changes(unread.into_iter().collect()),
            Ok(Err(error)) => {
                tracing::debug!(error, "the receiver does not report who reads its queues")
            }
            Err(error) => {
                tracing::debug!(%error, "the receiver does not report who reads its queues")
            }
        }
    }

    fn log_changes(&mut self, unread: BTreeSet<String>) {
        let destination = self.shared.destination.label();
        for receiver_queue in unread.difference(&self.unread) {
            tracing::warn!(
                destination,
                receiver_queue,
                "no worker reads this queue at the receiver; messages wait there"
            );
        }
        for receiver_queue in self.unread.difference(&unread) {
            tracing::info!(
                destination,
                receiver_queue,
                "a worker reads this queue again"
            );
        }
        self.unread = unread;
    }
}
