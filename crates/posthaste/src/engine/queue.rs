//! A queue as the engine sees it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::consumer::Consumer;
use crate::retry::Backoff;

/// A queue that this process works on.
pub(crate) struct QueueState {
    pub(crate) name: Arc<str>,
    pub(crate) backoff: Backoff,
    pub(crate) consumer: Arc<dyn Consumer>,
    /// Told when the consumer may have room again.
    pub(crate) room: Notify,
    lanes: Mutex<Vec<i32>>,
}

impl QueueState {
    pub(crate) fn new(name: &str, consumer: Arc<dyn Consumer>) -> Self {
        // Lane 0 is where most jobs go; probing it costs nothing, discovering it would cost the first job a moment.
        Self {
            name: name.into(),
            backoff: consumer.backoff(),
            consumer,
            room: Notify::new(),
            lanes: Mutex::new(vec![0]),
        }
    }

    /// Known priorities, lowest number first: the order of claiming.
    pub(crate) fn priorities(&self) -> Vec<i32> {
        self.lanes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn learn(&self, priority: i32) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(at) = lanes.binary_search(&priority) {
            lanes.insert(at, priority);
        }
    }
}
