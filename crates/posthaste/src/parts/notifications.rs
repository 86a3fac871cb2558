//! Sleeping tasks and their requests to be woken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::poll_pause::{PollPause, max_notifications};

/// A task that can be woken.
#[derive(Default)]
pub(crate) struct Sleeper {
    /// Notified when there may be something to do.
    pub(crate) woken: Notify,
    sleep: Mutex<PollPause>,
    /// The number of notifications so far.
    notifications: AtomicU64,
}

impl Sleeper {
    pub(crate) fn sleep<T>(&self, change: impl FnOnce(&mut PollPause) -> T) -> T {
        change(&mut self.sleep.lock())
    }

    /// Wakes the task and counts the notification.
    pub(crate) fn notify(&self) {
        self.notifications.fetch_add(1, Ordering::SeqCst);
        self.woken.notify_one();
    }

    pub(crate) fn notifications(&self) -> u64 {
        self.notifications.load(Ordering::SeqCst)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.sleep(|sleep| sleep.is_on())
    }

    /// Forgets that notifications are on or wanted.
    pub(crate) fn reset(&self) {
        self.sleep(PollPause::reset);
    }
}

/// The state that sleeping tasks and the notifier share.
#[derive(Default)]
pub(crate) struct Notifications {
    /// Whether notifications arrive.
    is_listening: AtomicBool,
    /// Notified when a task wants to be woken.
    pub(crate) wanted: Notify,
    /// The promoter.
    pub(crate) promoter: Sleeper,
    /// About how long a commit takes, in microseconds; 0: not known yet.
    commit_time: AtomicU64,
}

impl Notifications {
    /// Returns how long a task that found nothing pauses, `idle` after it last found something;
    /// `None`: until it is woken.
    pub(crate) fn pause(
        &self,
        sleeper: &Sleeper,
        idle: Duration,
        longest: Duration,
    ) -> Option<Duration> {
        let listening = self.is_listening.load(Ordering::SeqCst);
        let (pause, wanted) = sleeper.sleep(|sleep| {
            let pause = sleep.pause(Instant::now(), idle, longest, listening);
            (pause, sleep.is_wanted())
        });
        if wanted {
            self.wanted.notify_one();
        }
        pause
    }

    /// Records how long a statement with a commit that waits for the disk took.
    pub(crate) fn record_commit(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let mean = match self.commit_time.load(Ordering::Relaxed) {
            0 => took,
            before => before - before / 8 + took / 8,
        };
        self.commit_time.store(mean.max(1), Ordering::Relaxed);
    }

    /// Returns how many notifications of a queue are tolerated within a counting period.
    pub(crate) fn limit(&self) -> u32 {
        let micros = self.commit_time.load(Ordering::Relaxed);
        max_notifications((micros > 0).then(|| Duration::from_micros(micros)))
    }

    /// Sets whether notifications arrive from now on.
    pub(crate) fn set_listening(&self, is_listening: bool) {
        self.is_listening.store(is_listening, Ordering::SeqCst);
    }
}
