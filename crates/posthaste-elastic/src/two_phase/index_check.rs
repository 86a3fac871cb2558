//! Checks of the indexes: before anything else, from time to time, and when an index may be new.
//!
//! A server creates a missing index at the first write to it, without mapping and settings. An
//! index that is deleted while processes are running thus reappears in a form that is unsafe to
//! use.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::coordinator::Coordinator;
use super::failure::Failure;

/// The time for which the result of a check is valid.
const CHECK_VALID_FOR: Duration = Duration::from_secs(60);

impl Coordinator {
    fn checked_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.checked_at.lock()
    }

    /// Creates missing indexes with this many replicas, and stores the scripts.
    ///
    /// # Errors
    /// [`Failure::Misconfigured`] if an existing index is different, or if a replica would have no
    /// node. No index was created then.
    pub async fn prepare(&self, replicas: u8) -> Result<(), Failure> {
        self.store.prepare(replicas).await?;
        self.check_again().await
    }

    /// Checks the configuration of the indexes, unless they were checked recently.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let seen = *self.checked_at();
        if seen.is_some_and(|seen| seen.elapsed() < CHECK_VALID_FOR) {
            return Ok(());
        }
        // Concurrent callers rely on the previous result.
        if seen.is_some() {
            *self.checked_at() = Some(Instant::now());
        }
        match self.store.check().await {
            Ok(()) => *self.checked_at() = Some(Instant::now()),
            // The server is unavailable: the call itself encounters that and reports what it means.
            Err(Failure::Unavailable(_)) if seen.is_some() => {}
            Err(failure) => {
                *self.checked_at() = None;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Like [`check`](Self::check), regardless of earlier results.
    pub(super) async fn check_again(&self) -> Result<(), Failure> {
        *self.checked_at() = None;
        self.check().await
    }
}
