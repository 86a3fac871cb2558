//! What a relay does beside sending: keeps its lease where it is ordered, writes down how it goes,
//! and asks who reads what it sent. On the engine's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste::Error;
use posthaste::consumer::ConsumerContext;

use crate::engine::lease::Lease;
use crate::engine::readers::ConsumerWatch;
use crate::engine::shared::Shared;
use crate::store;
use crate::store::status::{RelayState, RelayStatus};

/// What has changed is written this often at most, and as soon as this when the state is another
/// one.
const FLUSH_AFTER: Duration = Duration::from_secs(5);
/// What has not is written this often: one that writes nothing for three times as long is thought
/// to be gone (src/store/relays.sql).
const FLUSH_ALWAYS: Duration = Duration::from_secs(10);
/// How often the tasks check whether anything is due.
const TICK: Duration = Duration::from_secs(1);
/// How often a standby asks for the lease.
const STANDBY_POLL: Duration = Duration::from_secs(2);

/// Runs until the worker has nothing in memory any more.
pub(crate) async fn run(shared: Arc<Shared>, worker: ConsumerContext) {
    let leasing = async {
        if shared.options.ordered {
            tokio::select! {
                () = LeaseKeeper::new(&shared, &worker).run() => {}
                // The lease is of no use any more, and an answer may not come.
                () = worker.ended() => {}
            }
        }
    };
    let mut readers = ConsumerWatch::new(&shared);
    let asking = async {
        loop {
            readers.poll().await;
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = worker.ended() => break,
            }
        }
    };
    // A flush may take long; no lease waits for it.
    tokio::join!(leasing, StatusReporter::new(&shared, &worker).run(), asking);
}

/// A relay, and what the database knows of it.
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
        let pause = TICK.min(self.worker.rescue_after() / 8);
        loop {
            self.flush().await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.worker.ended() => break,
            }
        }
        // How it ended, whether that was written a moment ago or not.
        self.flushed = None;
        self.flush().await;
    }

    async fn flush(&mut self) {
        let state = self.state();
        let status = self.shared.status().clone();
        let is_due = match &self.flushed {
            None => true,
            Some((at, flushed, _)) if *flushed != state || at.elapsed() >= FLUSH_ALWAYS => true,
            Some((at, _, flushed)) => at.elapsed() >= FLUSH_AFTER && *flushed != status,
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

    fn state(&self) -> RelayState {
        if !self.shared.may_send() {
            RelayState::Standby
        } else if self.shared.status().down_since.is_some() {
            RelayState::Down
        } else {
            RelayState::Up
        }
    }
}

/// The lease of an ordered relay, asked for on a connection of its own.
struct LeaseKeeper<'a> {
    shared: &'a Shared,
    worker: ConsumerContext,
    /// Consecutive requests without an answer.
    failures: u32,
    /// The expiry of the lease was logged.
    was_over: bool,
    /// The workers that this process has been.
    own_workers: Vec<i64>,
}

impl<'a> LeaseKeeper<'a> {
    fn new(shared: &'a Shared, worker: &ConsumerContext) -> Self {
        Self {
            shared,
            // What is asked for here has a shorter time of its own.
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
                Some(worker) => self.ask(worker, lease).await,
                None => STANDBY_POLL.min(lease / 4),
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Declared dead: what is in memory waits for the answer.
                () = self.worker.changed(worker) => {}
            }
        }
    }

    /// Takes or keeps the lease; how long to wait until it is asked for again. While the dead one's
    /// jobs come first it is asked more often whether any are left.
    async fn ask(&mut self, worker: i64, lease: Duration) -> Duration {
        let shared = self.shared;
        let now = Instant::now();
        // One lost answer costs no lease. Where the database is slow it gets longer.
        let limit = (lease / 8).saturating_mul(1 << self.failures.min(3));
        let asked = store::take_lease(&self.worker, worker, lease);
        let holder = match tokio::time::timeout(limit, asked).await {
            Ok(Ok(holder)) => holder,
            Ok(Err(error)) => return self.failed(&error, lease),
            Err(late) => return self.failed(&late, lease),
        };
        (self.failures, self.was_over) = (0, false);
        if !self.own_workers.contains(&worker) {
            self.own_workers.push(worker);
        }
        if holder.worker != worker {
            match self.own_workers.contains(&holder.worker) {
                // It is nobody else's, and nobody's for a while.
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
            true => TICK.min(lease / 8),
            false => (lease / 4).saturating_sub(now.elapsed()),
        }
    }

    /// It lasts as long as it was given.
    fn failed(&mut self, error: &dyn std::error::Error, lease: Duration) -> Duration {
        let queue = self.worker.queue();
        tracing::debug!(%error, queue, "the lease of an ordered relay could not be renewed");
        self.failures += 1;
        let is_over = self.shared.lease().is_over(Instant::now());
        if is_over && !std::mem::replace(&mut self.was_over, true) {
            tracing::warn!(%error, queue, "the lease of an ordered relay expired; its jobs wait \
                                           for it");
        }
        TICK.min(lease / 16)
    }
}

async fn write_status(
    worker: &ConsumerContext,
    flushed: &store::RelayStatusRow<'_>,
) -> Result<(), Error> {
    let id = worker.worker().await?;
    store::flush(worker, id, flushed).await
}
