//! The relay as the worker sees it: a consumer of one queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use posthaste::consumer::{Consumer, ConsumerContext, Delivery};
use posthaste::{Backoff, JobId};
use tokio::sync::Notify;

use crate::engine::background;
use crate::engine::shared::Shared;
use crate::store::status::RelayStatus;

/// Sends the jobs of a queue to a destination. It is a [`Consumer`], for
/// [`WorkerBuilder::consumer`](posthaste::WorkerBuilder::consumer).
#[derive(Clone)]
pub struct Relay {
    pub(super) shared: Arc<Shared>,
}

impl Relay {
    /// Returns its current status.
    pub fn status(&self) -> RelayStatus {
        self.shared.status().clone()
    }

    /// Completes when the destination can never accept a message again
    /// ([`Destination::is_gone`](crate::Destination::is_gone)): the relay can only be stopped. No
    /// attempt is counted.
    pub async fn gone(&self) {
        self.shared.gone.cancelled().await;
    }

    /// Returns why its destination was refused at the start, if the relay
    /// [waits](crate::RelayBuilder::wait_if_misconfigured) for the problem to be fixed.
    pub fn misconfiguration(&self) -> Option<&str> {
        self.shared.misconfiguration.get().map(String::as_str)
    }
}

impl Consumer for Relay {
    fn capacity(&self) -> usize {
        let options = &self.shared.options;
        if self.shared.stopping.is_cancelled() || !self.shared.lease().may_claim(Instant::now()) {
            return 0;
        }
        let under_way = options.batch.saturating_mul(options.concurrency);
        self.shared.buffer().room(under_way)
    }

    fn consume(&self, claim: Vec<Delivery>) {
        self.shared.buffer().add_claimed(claim);
        self.shared.arrived.notify_one();
        if self.shared.end_token().is_cancelled() {
            self.shared.give_back_waiting();
        }
    }

    fn give_back(&self) {
        self.shared.stopping.cancel();
        if self.shared.end_token().is_cancelled() {
            self.shared.give_back_waiting();
        }
    }

    fn abort(&self) {
        self.shared.stopping.cancel();
        self.shared.aborted.cancel();
        self.shared.give_back_waiting();
    }

    fn cancel(&self, jobs: &[JobId]) {
        let is_cancelled = |one: &Delivery| jobs.contains(&one.job.id);
        let removed = self.shared.buffer().remove(is_cancelled);
        removed.into_iter().for_each(|one| one.ticket.cancel());
    }

    fn limit(&self) -> Option<Duration> {
        Some(self.shared.options.time_limit)
    }

    fn backoff(&self) -> Backoff {
        self.shared.options.backoff
    }

    /// Notified after outcomes were sent.
    fn room(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.shared.room))
    }

    fn is_ordered(&self) -> bool {
        self.shared.options.ordered
    }

    /// Quarantined jobs are for the relay that holds the lease.
    fn takes_quarantined(&self) -> bool {
        self.shared.may_send()
    }

    fn worker_lost(&self) {
        self.shared.suspend_lease();
    }

    fn background_task(&self, worker: ConsumerContext) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(background::run_tasks(
            Arc::clone(&self.shared),
            worker,
        )))
    }
}
