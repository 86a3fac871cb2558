//! How many jobs this process has.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Counts the jobs that were handed out and are not settled yet.
#[derive(Default)]
pub(crate) struct Outstanding {
    outstanding: AtomicUsize,
    in_hand: AtomicUsize,
    /// Notified when jobs were handed out.
    handed_out: Notify,
    /// Outcomes are not taken any more: that task has ended.
    unsettled: CancellationToken,
}

impl Outstanding {
    /// Jobs that were delivered and are not settled yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::SeqCst)
    }

    /// Those of them that run, or whose outcomes are being written. Not those that wait by
    /// themselves, for somebody's open transaction perhaps: who wants to be alone would wait for a
    /// stranger.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::SeqCst)
    }

    pub(crate) fn delivered(&self, jobs: usize) {
        self.outstanding.fetch_add(jobs, Ordering::SeqCst);
        self.in_hand.fetch_add(jobs, Ordering::SeqCst);
        self.handed_out.notify_waiters();
    }

    /// Waits until jobs are out: the task that handles them sleeps meanwhile.
    pub(crate) async fn wait_until_busy(&self) {
        let handed_out = self.handed_out.notified();
        if self.outstanding() == 0 {
            handed_out.await;
        }
    }

    pub(crate) fn settled(&self, jobs: usize) {
        self.set_aside(jobs);
        self.settled_aside(jobs);
    }

    /// These jobs have ended, and their acknowledgements wait by themselves from now on.
    pub(crate) fn set_aside(&self, jobs: usize) {
        self.in_hand.fetch_sub(jobs, Ordering::SeqCst);
    }

    /// Jobs that were set aside are settled.
    pub(crate) fn settled_aside(&self, jobs: usize) {
        self.outstanding.fetch_sub(jobs, Ordering::SeqCst);
    }

    /// The task that takes the outcomes: without it nothing is settled any more, so nothing is
    /// waited for.
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

    /// Waits until nothing is outstanding, at most this long; what nobody settles any more is not
    /// waited for.
    pub(crate) async fn drained(&self, within: Duration) -> bool {
        let drained = tokio::time::timeout(within, wait_until_zero(&self.outstanding));
        tokio::select! {
            drained = drained => drained.is_ok(),
            () = self.unsettled.cancelled() => false,
        }
    }

    /// Waits until nothing is in hand.
    pub(super) async fn nothing(&self) {
        wait_until_zero(&self.in_hand).await;
    }
}

async fn wait_until_zero(jobs: &AtomicUsize) {
    while jobs.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
