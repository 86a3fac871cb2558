//! A queue as the engine sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::bell::Sleeper;
use crate::claim::Pace;
use crate::consumer::Consumer;
use crate::relay::Relay;
use crate::retry::Backoff;

/// A queue that this process works on.
pub(crate) struct QueueState {
    pub(crate) name: Arc<str>,
    pub(crate) backoff: Backoff,
    pub(crate) consumer: Arc<dyn Consumer>,
    /// Told when the consumer may have room again.
    pub(crate) room: Arc<Notify>,
    /// Woken by the bell, and by the watch.
    pub(crate) sleeper: Sleeper,
    is_asleep: AtomicBool,
    /// It was rung for and nothing was found: perhaps in a lane that is not known.
    is_missed: AtomicBool,
    lanes: Mutex<Vec<i32>>,
    pace: Mutex<Pace>,
}

impl QueueState {
    pub(crate) fn new(name: &str, consumer: Arc<dyn Consumer>) -> Self {
        // Lane 0 is where most jobs go; probing it costs nothing, discovering it would cost the first job a moment.
        Self {
            name: name.into(),
            backoff: consumer.backoff(),
            room: consumer.as_relay().map(Relay::room).unwrap_or_default(),
            consumer,
            sleeper: Sleeper::default(),
            is_asleep: AtomicBool::new(false),
            is_missed: AtomicBool::new(false),
            lanes: Mutex::new(vec![0]),
            pace: Mutex::default(),
        }
    }

    /// Known priorities, lowest number first: the order of claiming.
    pub(crate) fn priorities(&self) -> Vec<i32> {
        self.lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How large claims may be.
    pub(crate) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether only a ring or the watch wakes it.
    pub(crate) fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::SeqCst)
    }

    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.is_asleep.store(asleep, Ordering::SeqCst);
    }

    pub(crate) fn set_missed(&self) {
        self.is_missed.store(true, Ordering::SeqCst);
    }

    /// Whether lanes are to be searched for now.
    pub(crate) fn is_searched(&self) -> bool {
        self.is_missed.swap(false, Ordering::SeqCst) || !self.is_asleep()
    }

    pub(crate) fn learn(&self, priority: i32) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = lanes.binary_search(&priority) {
            lanes.insert(at, priority);
        }
    }
}
