//! Whether the indexes still are as they must be: checked before anything else, now and then, and
//! where one may be new.
//!
//! A server makes an index that is not there by the first write to it, without mapping and
//! settings. So one that is deleted while others are at work comes back as one that nobody should
//! work on.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::coordinator::Coordinator;
use super::failure::Failure;

/// For this long what was seen is believed.
const AGAIN: Duration = Duration::from_secs(60);

impl Coordinator {
    fn checked_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.checked_at.lock()
    }

    /// Makes the indexes with this many replicas where they are not there, and stores the scripts.
    ///
    /// # Errors
    /// [`Failure::Misconfigured`] if an index is there and is another, or if a replica would have
    /// no node to be on. No index was made then.
    pub async fn prepare(&self, replicas: u8) -> Result<(), Failure> {
        self.store.prepare(replicas).await?;
        self.check_again().await
    }

    /// Checks whether the indexes are as they must be, unless they were checked recently.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let seen = *self.checked_at();
        if seen.is_some_and(|seen| seen.elapsed() < AGAIN) {
            return Ok(());
        }
        // Who comes meanwhile goes by what was seen before.
        if seen.is_some() {
            *self.checked_at() = Some(Instant::now());
        }
        match self.store.check().await {
            Ok(()) => *self.checked_at() = Some(Instant::now()),
            // The server is away: the call itself meets that, and says what it means.
            Err(Failure::Unavailable(_)) if seen.is_some() => {}
            Err(failure) => {
                *self.checked_at() = None;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// As [`check`](Self::check), whatever was seen before.
    pub(super) async fn check_again(&self) -> Result<(), Failure> {
        *self.checked_at() = None;
        self.check().await
    }
}
