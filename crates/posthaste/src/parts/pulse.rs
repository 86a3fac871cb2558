//! The last sign of life of the engine's thread.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time that a task on the engine's thread last recorded; the heartbeat reads it.
#[derive(Debug)]
pub(crate) struct Pulse(Mutex<Instant>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Pulse {
    /// Records that the thread is running.
    pub(crate) fn beat(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Returns how long the thread has been stalled.
    pub(crate) fn stalled_for(&self) -> Duration {
        let last = *self.0.lock();
        last.elapsed()
    }
}
