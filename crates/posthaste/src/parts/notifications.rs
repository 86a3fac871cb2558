//! Tasks that sleep, and how they ask to be woken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::sleep::Sleep;

/// A task that can be woken.
#[derive(Default)]
pub(crate) struct Sleeper {
    /// Notified when there may be something to do.
    pub(crate) woken: Notify,
    sleep: Mutex<Sleep>,
    /// How many notifications came.
    notifications: AtomicU64,
}

impl Sleeper {
    pub(crate) fn sleep<T>(&self, change: impl FnOnce(&mut Sleep) -> T) -> T {
        change(&mut self.sleep.lock())
    }

    /// A notification came.
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

    /// It is not notified any more, or wants no more to be.
    pub(crate) fn forget(&self) {
        self.sleep(Sleep::forget);
    }
}

/// What the tasks that sleep and the notifier tell each other.
#[derive(Default)]
pub(crate) struct Notifications {
    /// They arrive.
    is_listening: AtomicBool,
    /// Notified when a task wants to be woken.
    pub(crate) wanted: Notify,
    /// The promoter.
    pub(crate) promoter: Sleeper,
}

impl Notifications {
    /// How long a task that found nothing is to pause, `idle` after the last find; `None`: until it
    /// is woken.
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
    /// Whether they arrive from now on.
    pub(crate) fn set_listening(&self, is_listening: bool) {
        self.is_listening.store(is_listening, Ordering::SeqCst);
    }
}
