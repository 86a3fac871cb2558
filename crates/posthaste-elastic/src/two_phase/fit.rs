//! Whether the indexes still are as they must be: looked at before anything else, now and then, and
//! where one may be new.
//!
//! A server makes an index that is not there by the first write to it, without mapping and
//! settings. So one that is deleted while others are at work comes back as one that nobody should
//! work on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::coordinator::Coordinator;
use super::failure::Failure;

/// For this long what was seen is believed.
const AGAIN: Duration = Duration::from_secs(60);

/// When the indexes were last seen to be as they must be.
#[derive(Debug, Default)]
pub(super) struct Fit(Mutex<Option<Instant>>);

impl Fit {
    fn seen(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coordinator {
    /// Makes the indexes with this many replicas where they are not there, and stores the scripts.
    ///
    /// # Errors
    /// [`Failure::Unfit`] if an index is there and is another, or if a replica would have no node
    /// to be on. No index was made then.
    pub async fn prepare(&self, replicas: u8) -> Result<(), Failure> {
        self.store.prepare(replicas).await?;
        self.check_again().await
    }

    /// Looks whether the indexes are as they must be, unless somebody has just looked.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let seen = *self.fit.seen();
        if seen.is_some_and(|seen| seen.elapsed() < AGAIN) {
            return Ok(());
        }
        // Who comes meanwhile goes by what was seen before.
        if seen.is_some() {
            *self.fit.seen() = Some(Instant::now());
        }
        match self.store.check().await {
            Ok(()) => *self.fit.seen() = Some(Instant::now()),
            // The server is away: the call itself meets that, and says what it means.
            Err(Failure::Unavailable(_)) if seen.is_some() => {}
            Err(failure) => {
                *self.fit.seen() = None;
                return Err(failure);
            }
        }
        Ok(())
    }

    /// As [`check`](Self::check), whatever was seen before.
    pub(super) async fn check_again(&self) -> Result<(), Failure> {
        *self.fit.seen() = None;
        self.check().await
    }
}
