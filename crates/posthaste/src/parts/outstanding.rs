//! Counts the jobs of this process.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Counts jobs that were delivered and are not settled.
#[derive(Default)]
pub(crate) struct Outstanding {
    outstanding: AtomicUsize,
    in_hand: AtomicUsize,
    /// Notified when jobs are delivered.
    handed_out: Notify,
    /// Cancelled when the task that settles jobs has ended.
    unsettled: CancellationToken,
}

impl Outstanding {
    /// Returns the number of jobs that were delivered and are not settled.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::SeqCst)
    }

    /// Returns the number of jobs that run or are being acknowledged. It excludes jobs whose
    /// acknowledgements wait separately, perhaps for a user's open transaction: a quarantined job
    /// that must run alone would wait for that transaction.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::SeqCst)
    }

    pub(crate) fn record_delivered(&self, jobs: usize) {
        self.outstanding.fetch_add(jobs, Ordering::SeqCst);
        self.in_hand.fetch_add(jobs, Ordering::SeqCst);
        self.handed_out.notify_waiters();
    }

    /// Waits until jobs are outstanding, so that the task that handles them sleeps until then.
    pub(crate) async fn wait_until_busy(&self) {
        let handed_out = self.handed_out.notified();
        if self.outstanding() == 0 {
            handed_out.await;
        }
    }

    pub(crate) fn record_settled(&self, jobs: usize) {
        self.set_aside(jobs);
        self.settled_aside(jobs);
    }

    /// Records that these jobs have ended and that their acknowledgements wait separately from now
    /// on.
    pub(crate) fn set_aside(&self, jobs: usize) {
        self.in_hand.fetch_sub(jobs, Ordering::SeqCst);
    }

    /// Records that jobs which were set aside are settled.
    pub(crate) fn settled_aside(&self, jobs: usize) {
        self.outstanding.fetch_sub(jobs, Ordering::SeqCst);
    }

    /// Wraps the task that settles jobs. Once it has ended, no job can be settled, so
    /// [`wait_until_drained`](Self::wait_until_drained) stops waiting.
    pub(crate) fn settled_by<T: Future<Output = ()>>(
        &self,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let unsettled = self.unsettled.clone().drop_guard();
        async move {
            let _unsettled = unsettled;
            task.await;
        }
    }

    /// Waits until no job is outstanding, at most this long, or until no job can be settled any
    /// more. Returns whether none is outstanding.
    pub(crate) async fn wait_until_drained(&self, within: Duration) -> bool {
        let drained = tokio::time::timeout(within, wait_until_zero(&self.outstanding));
        tokio::select! {
            drained = drained => drained.is_ok(),
            () = self.unsettled.cancelled() => false,
        }
    }

    /// Waits until no job runs or is being acknowledged.
    pub(super) async fn wait_until_idle(&self) {
        wait_until_zero(&self.in_hand).await;
    }
}

async fn wait_until_zero(jobs: &AtomicUsize) {
    while jobs.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
