//! The state of a queue that the loops share.

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
    /// Woken by the notifier, and by the watch (notifier/watch.rs).
    pub(crate) sleeper: Sleeper,
    /// The oldest unanswered claim.
    pub(crate) owed: OldestUnanswered,
    is_sleeping: AtomicBool,
    /// A notification came and nothing was found: the job may be in an unknown lane.
    is_missed: AtomicBool,
    lanes: Mutex<Vec<i32>>,
}

impl QueueState {
    pub(crate) fn new(name: &str, consumer: Arc<dyn Consumer>) -> Self {
        // Most jobs are in lane 0. Probing it costs nothing; discovering it would delay the first
        // job.
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

    /// Returns the known priorities in the order of claiming: the lowest number first.
    pub(crate) fn priorities(&self) -> Vec<i32> {
        self.lanes.lock().clone()
    }

    /// Whether only a notification or the watch wakes the queue.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.is_sleeping.load(Ordering::SeqCst)
    }

    pub(crate) fn set_sleeping(&self, asleep: bool) {
        self.is_sleeping.store(asleep, Ordering::SeqCst);
    }

    pub(crate) fn set_missed(&self) {
        self.is_missed.store(true, Ordering::SeqCst);
    }

    /// Whether unknown lanes are searched now.
    pub(crate) fn is_searched(&self) -> bool {
        self.is_missed.swap(false, Ordering::SeqCst) || !self.is_sleeping()
    }

    /// Replaces the known lanes.
    pub(crate) fn replace_lanes(&self, mut lanes: Vec<i32>) {
        lanes.push(0);
        lanes.sort_unstable();
        lanes.dedup();
        *self.lanes.lock() = lanes;
    }

    pub(crate) fn add_priority(&self, priority: i32) {
        let mut lanes = self.lanes.lock();
        if let Err(at) = lanes.binary_search(&priority) {
            lanes.insert(at, priority);
        }
    }
}
