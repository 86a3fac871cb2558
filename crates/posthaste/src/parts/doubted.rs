//! Workers of which the database may say more than is in this process.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};

/// The ids that this process has or had, after the server may have forgotten what it had answered.
#[derive(Debug, Default)]
pub(crate) struct Doubted(Mutex<HashSet<i64>>);

impl Doubted {
    pub(crate) fn add(&self, worker: i64) {
        self.workers().insert(worker);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.workers().is_empty()
    }

    /// All of them; one that could not be asked about is added again.
    pub(crate) fn take(&self) -> HashSet<i64> {
        std::mem::take(&mut *self.workers())
    }

    fn workers(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.0.lock()
    }
}
