//! Checks whether the receiver's queues have readers: messages in a queue without a worker seem
//! delivered.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::engine::shared::Shared;

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Timeout of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks the queues periodically, and logs changes.
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

    /// Checks the queues if that is due: once a minute, and soon after a message was sent to
    /// another queue. Must be called often.
    pub(crate) async fn check_if_due(&mut self) {
        let queues: Vec<String> = self.shared.receiver_queues().names();
        let is_due = match self.asked {
            None => !queues.is_empty(),
            Some((at, known)) => at.elapsed() >= CHECK_INTERVAL || queues.len() > known,
        };
        if !is_due || self.shared.status().down_since.is_some() {
            return;
        }
        self.asked = Some((Instant::now(), queues.len()));
        let asked = self.shared.destination.queues_without_workers(&queues);
        match tokio::time::timeout(CHECK_TIMEOUT, asked).await {
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
                "no worker of the receiver reads this queue; messages wait there"
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
