//! The gate that claims pass.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

use super::outstanding::Outstanding;

/// The gate is open for the one that has this.
pub(crate) type Passed<'a> = RwLockReadGuard<'a, ()>;

/// Pauses claims while a quarantined job runs alone. A claim that has passed holds it open until
/// its jobs were delivered: without that they would be delivered beside the quarantined job. The
/// lock is fair, so neither side starves the other.
#[derive(Default)]
pub(crate) struct Gate {
    passing: RwLock<()>,
}

impl Gate {
    /// Waits while the gate is closed; nothing when the engine stops.
    pub(crate) async fn pass(&self, stopping: &CancellationToken) -> Option<Passed<'_>> {
        tokio::select! {
            passed = self.passing.read() => Some(passed),
            () = stopping.cancelled() => None,
        }
    }

    /// Passes once more without waiting; nothing when somebody wants the gate closed.
    pub(crate) fn pass_again(&self) -> Option<Passed<'_>> {
        self.passing.try_read().ok()
    }

    /// Lets nobody pass any more and waits until no claim is in flight and no job is held;
    /// nothing if that takes longer than this. It opens again when the guard is dropped, or this
    /// future.
    pub(crate) async fn alone(
        &self,
        jobs: &Outstanding,
        within: Duration,
    ) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = async {
            let closed = self.passing.write().await;
            jobs.nothing().await;
            closed
        };
        tokio::time::timeout(within, alone).await.ok()
    }
}
