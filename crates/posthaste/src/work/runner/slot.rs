//! A slot, which runs one job at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::consumer::Ticket;
use crate::work::handlers::HandlerId;

/// A handler that exceeds its timeout by this much blocks its thread: its job is taken from it and
/// another slot replaces this one.
const TIMEOUT_GRACE: Duration = Duration::from_millis(500);

/// Time that a handler whose job was cancelled has to clean up.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// The current run.
pub(super) struct Run {
    pub(super) ticket: Ticket,
    /// `None` if no handler knows the job's name.
    pub(super) which: Option<HandlerId>,
    pub(super) started: Instant,
    pub(super) timeout: Duration,
    pub(super) cancelled: CancellationToken,
    /// Whether its handler has called `complete_in`.
    pub(super) completed: Arc<AtomicBool>,
}

impl Run {
    pub(super) fn is_overdue(&self) -> bool {
        self.started.elapsed() > self.timeout.saturating_add(TIMEOUT_GRACE)
    }
}

/// A slot. The caller that takes the run out of it reports the outcome; others find nothing.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) current: Mutex<Option<Run>>,
    /// Whether its handler blocks the thread and another slot has replaced it.
    pub(super) abandoned: AtomicBool,
}

impl Slot {
    pub(super) fn current(&self) -> MutexGuard<'_, Option<Run>> {
        self.current.lock()
    }

    pub(super) fn take(&self) -> Option<Run> {
        self.current().take()
    }
}

/// Completes when a run was cancelled and its time to clean up has passed.
pub(super) async fn exceeded_cancel_grace(cancelled: &CancellationToken) {
    cancelled.cancelled().await;
    tokio::time::sleep(CANCEL_GRACE).await;
}
