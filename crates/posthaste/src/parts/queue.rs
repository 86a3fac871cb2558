//! A queue as the loops see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::notifications::Sleeper;
use super::oldest_unanswered::OldestUnanswered;
use crate::consumer::Consumer;
use crate::retry::Backoff;

/// The queues that this process works on.
pub(crate) type Queues = Arc<[Arc<QueueState>]>;

/// A queue that this process works on.
pub(crate) struct QueueState {
    pub(crate) name: Arc<str>,
    pub(crate) backoff: Backoff,
    pub(crate) consumer: Arc<dyn Consumer>,
    /// Notified when the consumer may have room again.
    pub(crate) room: Arc<Notify>,
    /// Woken by the notifier, and by the watch.
    pub(crate) sleeper: Sleeper,
    /// The answers to its claims.
    pub(crate) owed: OldestUnanswered,
    is_sleeping: AtomicBool,
    /// It was notified and nothing was found: perhaps in a lane that is not known.
    is_missed: AtomicBool,
    lanes: Mutex<Vec<i32>>,
}

impl QueueState {
    pub(crate) fn new(name: &str, consumer: Arc<dyn Consumer>) -> Self {
        // Lane 0 is where most jobs go; probing it costs nothing, discovering it would cost the
        // first job a moment.
        Self {
            name: name.into(),
            backoff: consumer.backoff(),
            room: consumer.room().unwrap_or_default(),
            consumer,
            sleeper: Sleeper::default(),
            owed: OldestUnanswered::default(),
            is_sleeping: AtomicBool::new(false),
            is_missed: AtomicBool::new(false),
            lanes: Mutex::new(vec![0]),
        }
    }

    /// Known priorities, lowest number first: the order of claiming.
    pub(crate) fn priorities(&self) -> Vec<i32> {
        self.lanes.lock().clone()
    }

    /// Whether only a notification or the watch wakes it.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.is_sleeping.load(Ordering::SeqCst)
    }

    pub(crate) fn set_sleeping(&self, asleep: bool) {
        self.is_sleeping.store(asleep, Ordering::SeqCst);
    }

    pub(crate) fn set_missed(&self) {
        self.is_missed.store(true, Ordering::SeqCst);
    }

    /// Whether lanes are to be searched for now.
    pub(crate) fn is_searched(&self) -> bool {
        self.is_missed.swap(false, Ordering::SeqCst) || !self.is_sleeping()
    }

    /// These are known, and no others.
    pub(crate) fn recall(&self, mut lanes: Vec<i32>) {
        lanes.push(0);
        lanes.sort_unstable();
        lanes.dedup();
        *self.lanes.lock() = lanes;
    }

    pub(crate) fn learn(&self, priority: i32) {
        let mut lanes = self.lanes.lock();
        if let Err(at) = lanes.binary_search(&priority) {
            lanes.insert(at, priority);
        }
    }
}
