//! The background tasks of a relay: they keep the lease of an ordered relay, report the status, and
//! check whether the receiver's queues have readers. They run on the engine's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste::Error;
use posthaste::consumer::ConsumerContext;

use crate::engine::lease::Lease;
use crate::engine::readers::ConsumerWatch;
use crate::engine::shared::Shared;
use crate::store;
use crate::store::status::{RelayState, RelayStatus};

/// Shortest time between two reports of a changed status; a changed state is reported at once.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two reports of an unchanged status. A relay that reports nothing for three times as
/// long is shown as silent (src/store/relays.sql).
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two checks of whether a task is due.
const TASK_POLL: Duration = Duration::from_secs(1);
/// Time between two requests of a standby for the lease.
const STANDBY_POLL: Duration = Duration::from_secs(2);

/// Runs until the worker has ended.
pub(crate) async fn run_tasks(shared: Arc<Shared>, worker: ConsumerContext) {
    let leasing = async {
        if shared.options.ordered {
            tokio::select! {
                () = LeaseKeeper::new(&shared, &worker).run() => {}
                // The lease is of no use after the end, and its answer may never arrive.
                () = worker.ended() => {}
            }
        }
    };
    let mut readers = ConsumerWatch::new(&shared);
    let asking = async {
        loop {
            readers.check_if_due().await;
            tokio::select! {
                () = tokio::time::sleep(TASK_POLL) => {}
                () = worker.ended() => break,
            }
        }
    };
    // A flush may take long; the lease must not wait for it.
    tokio::join!(leasing, StatusReporter::new(&shared, &worker).run(), asking);
}

/// Writes the status of a relay to the database.
struct StatusReporter<'a> {
    shared: &'a Shared,
    worker: &'a ConsumerContext,
    flushed: Option<(Instant, RelayState, RelayStatus)>,
}

impl<'a> StatusReporter<'a> {
    fn new(shared: &'a Shared, worker: &'a ConsumerContext) -> Self {
        let flushed = None;
        Self {
            shared,
            worker,
            flushed,
        }
    }

    async fn run(mut self) {
        let pause = TASK_POLL.min(self.worker.rescue_after() / 8);
        loop {
            self.report_if_due().await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.worker.ended() => break,
            }
        }
        // Writes the final status, even if the last report is recent.
        self.flushed = None;
        self.report_if_due().await;
    }

    async fn report_if_due(&mut self) {
        let state = self.relay_state();
        let status = self.shared.status().clone();
        let is_due = match &self.flushed {
            None => true,
            Some((at, flushed, _)) if *flushed != state || at.elapsed() >= MAX_REPORT_INTERVAL => {
                true
            }
            Some((at, _, flushed)) => at.elapsed() >= MIN_REPORT_INTERVAL && *flushed != status,
        };
        if !is_due {
            return;
        }
        let flushed = store::RelayStatusRow {
            queue: self.worker.queue(),
            route: &self.shared.name,
            destination: &self.shared.destination.label(),
            state,
            status: &status,
        };
        match write_status(self.worker, &flushed).await {
            Ok(()) => self.flushed = Some((Instant::now(), state, status)),
            Err(error) => {
                tracing::debug!(%error, "the status of a relay could not be written");
            }
        }
    }

    fn relay_state(&self) -> RelayState {
        if !self.shared.may_send() {
            RelayState::Standby
        } else if self.shared.status().down_since.is_some() {
            RelayState::Down
        } else {
            RelayState::Up
        }
    }
}

/// Requests the lease of an ordered relay on a separate connection.
struct LeaseKeeper<'a> {
    shared: &'a Shared,
    worker: ConsumerContext,
    /// Consecutive requests without an answer.
    failures: u32,
    /// The expiry was logged.
    was_over: bool,
    /// The worker ids that this process has had.
    own_workers: Vec<i64>,
}

impl<'a> LeaseKeeper<'a> {
    fn new(shared: &'a Shared, worker: &ConsumerContext) -> Self {
        Self {
            shared,
            // Requests for the lease have a shorter timeout than others.
            worker: worker.with_connection(),
            failures: 0,
            was_over: false,
            own_workers: Vec::new(),
        }
    }

    async fn run(mut self) {
        let lease = self.worker.rescue_after();
        loop {
            let worker = self.worker.worker().await.ok();
            let pause = match worker {
                Some(worker) => self.request_lease(worker, lease).await,
                None => STANDBY_POLL.min(lease / 4),
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // The worker was declared dead: buffered jobs wait for the answer.
                () = self.worker.changed(worker) => {}
            }
        }
    }

    /// Takes or renews the lease; returns the delay until the next request. While jobs of a dead
    /// holder remain it is shorter, to detect when none are left.
    async fn request_lease(&mut self, worker: i64, lease: Duration) -> Duration {
        let shared = self.shared;
        let now = Instant::now();
        // The lease survives one lost answer. The timeout grows while the database is slow.
        let limit = (lease / 8).saturating_mul(1 << self.failures.min(3));
        let asked = store::take_lease(&self.worker, worker, lease);
        let holder = match tokio::time::timeout(limit, asked).await {
            Ok(Ok(holder)) => holder,
            Ok(Err(error)) => return self.log_failure(&error, lease),
            Err(late) => return self.log_failure(&late, lease),
        };
        (self.failures, self.was_over) = (0, false);
        if !self.own_workers.contains(&worker) {
            self.own_workers.push(worker);
        }
        if holder.worker != worker {
            match self.own_workers.contains(&holder.worker) {
                // This process held the lease as an earlier worker: no other relay has it.
                true => shared.suspend_lease(),
                false => {
                    shared.set_lease(Lease::Missing);
                }
            }
            return STANDBY_POLL.min(lease / 4);
        }
        let quarantined = holder.quarantined > 0;
        let before = shared.set_lease(Lease::Held {
            until: now + lease,
            worker,
            quarantined,
        });
        if !before.may_send(now) {
            tracing::info!(
                queue = self.worker.queue(),
                "acquired the lease of this queue"
            );
        }
        match quarantined {
            true => TASK_POLL.min(lease / 8),
            false => (lease / 4).saturating_sub(now.elapsed()),
        }
    }

    /// Logs a failed request and returns the delay until the next. The lease remains valid until it
    /// expires.
    fn log_failure(&mut self, error: &dyn std::error::Error, lease: Duration) -> Duration {
        let queue = self.worker.queue();
        tracing::debug!(%error, queue, "the lease of an ordered relay could not be renewed");
        self.failures += 1;
        let is_over = self.shared.lease().is_expired(Instant::now());
        if is_over && !std::mem::replace(&mut self.was_over, true) {
            tracing::warn!(%error, queue, "the lease of an ordered relay expired; its jobs wait \
                                           for it");
        }
        TASK_POLL.min(lease / 16)
    }
}

async fn write_status(
    worker: &ConsumerContext,
    flushed: &store::RelayStatusRow<'_>,
) -> Result<(), Error> {
    let id = worker.worker().await?;
    store::write_relay_status(worker, id, flushed).await
}
