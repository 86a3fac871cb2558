//! When the engine's thread last moved.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Set by a task on the engine's thread, read by the heartbeat.
#[derive(Debug)]
pub(crate) struct Pulse(Mutex<Instant>);

impl Default for Pulse {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Pulse {
    /// The thread moves now.
    pub(crate) fn beat(&self) {
        *self.0.lock() = Instant::now();
    }

    /// For how long it has not moved.
    pub(crate) fn stalled_for(&self) -> Duration {
        let last = *self.0.lock();
        last.elapsed()
    }
}
