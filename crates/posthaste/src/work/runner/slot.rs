//! One place where a job runs, and its current run.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::consumer::Ticket;
use crate::work::handlers::HandlerId;

/// A handler that ignores its timeout for this long blocks its thread: its job is taken from it and
/// another slot takes over.
const TIMEOUT_GRACE: Duration = Duration::from_millis(500);

/// What a handler whose job was cancelled gets to clean up.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// The current run.
pub(super) struct Run {
    pub(super) ticket: Ticket,
    /// Nothing if no handler knows the job's name.
    pub(super) which: Option<HandlerId>,
    pub(super) started: Instant,
    pub(super) timeout: Duration,
    pub(super) cancelled: CancellationToken,
    /// Its handler has called complete_in.
    pub(super) completed: Arc<AtomicBool>,
}

impl Run {
    pub(super) fn is_overdue(&self) -> bool {
        self.started.elapsed() > self.timeout.saturating_add(TIMEOUT_GRACE)
    }
}

/// One place where a job runs. The one that takes the run out speaks for the job; the other finds
/// nothing.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) current: Mutex<Option<Run>>,
    /// Its handler blocks the thread; another slot has taken its place.
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

/// A run was cancelled and has had its time to clean up.
pub(super) async fn overstayed(cancelled: &CancellationToken) {
    cancelled.cancelled().await;
    tokio::time::sleep(CANCEL_GRACE).await;
}
