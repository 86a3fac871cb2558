//! Workers whose claims in the database may differ from those in this process.

use std::collections::HashSet;

use parking_lot::{Mutex, MutexGuard};

/// The ids of this process, current and former, whose answers the server may have lost.
#[derive(Debug, Default)]
pub(crate) struct DoubtedWorkers(Mutex<HashSet<i64>>);

impl DoubtedWorkers {
    pub(crate) fn add(&self, worker: i64) {
        self.workers().insert(worker);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.workers().is_empty()
    }

    /// Takes all ids. The caller adds an id again if the database could not be queried.
    pub(crate) fn take(&self) -> HashSet<i64> {
        std::mem::take(&mut *self.workers())
    }

    fn workers(&self) -> MutexGuard<'_, HashSet<i64>> {
        self.0.lock()
    }
}
