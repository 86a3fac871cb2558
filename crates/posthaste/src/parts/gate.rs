//! The gate for claims.

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

use super::outstanding::Outstanding;

/// Keeps the gate open.
pub(crate) type GatePass<'a> = RwLockReadGuard<'a, ()>;

/// Pauses claims while a quarantined job runs alone. A claim holds the gate open until its jobs are
/// delivered; otherwise they would be delivered beside the quarantined job. The lock is fair, so
/// neither side starves the other.
#[derive(Default)]
pub(crate) struct Gate {
    passing: RwLock<()>,
}

impl Gate {
    /// Waits while the gate is closed; returns `None` when the engine stops.
    pub(crate) async fn pass(&self, stopping: &CancellationToken) -> Option<GatePass<'_>> {
        tokio::select! {
            passed = self.passing.read() => Some(passed),
            () = stopping.cancelled() => None,
        }
    }

    /// Passes again without waiting; returns `None` if a quarantined job waits for the gate.
    pub(crate) fn pass_again(&self) -> Option<GatePass<'_>> {
        self.passing.try_read().ok()
    }

    /// Closes the gate and waits until no claim is in flight and no job runs or is being
    /// acknowledged; returns `None` after this timeout. The gate opens when the guard or this
    /// future is dropped.
    pub(crate) async fn close_until_idle(
        &self,
        jobs: &Outstanding,
        within: Duration,
    ) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = async {
            let closed = self.passing.write().await;
            jobs.wait_until_idle().await;
            closed
        };
        tokio::time::timeout(within, alone).await.ok()
    }
}
