//! Supervises the tasks of a worker. If a task ended silently, the process would stay alive and
//! send heartbeats while doing half of its work: jobs it no longer claims would not be rescued, and
//! outcomes would be lost. So the worker stops and reports which task failed.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::error;

/// Supervises tasks.
#[derive(Clone)]
pub(crate) struct TaskSupervisor {
    /// Cancelled when one fails.
    stopping: CancellationToken,
    /// The first failure.
    failure: Arc<OnceLock<String>>,
}

impl TaskSupervisor {
    pub(crate) fn new(stopping: CancellationToken) -> Self {
        Self {
            stopping,
            failure: Arc::default(),
        }
    }

    /// Wraps a task that runs until the worker stops.
    pub(crate) fn task<T: Future<Output = ()>>(
        &self,
        name: &str,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let (watched, owned_name) = (self.clone(), name.to_owned());
        self.guarded(name, async move {
            task.await;
            if !watched.stopping.is_cancelled() {
                watched.fail(format!("its task \"{owned_name}\" ended unexpectedly"));
            }
        })
    }

    /// Wraps a task that may end at any time, except by a panic.
    pub(crate) fn guarded<T: Future<Output = ()>>(
        &self,
        name: &str,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let (watched, name) = (self.clone(), name.to_owned());
        async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let panic = error::panic_text(&*panic);
                watched.fail(format!("its task \"{name}\" panicked: {panic}"));
            }
        }
    }

    /// Returns the first failure.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Records the failure of a required task, and stops the worker as cleanly as possible.
    fn fail(&self, what: String) {
        tracing::error!(
            error = what,
            "a task of the engine failed; the worker stops"
        );
        // The first failure is the cause; later ones may be its effects.
        let _ = self.failure.set(what);
        self.stopping.cancel();
    }
}
