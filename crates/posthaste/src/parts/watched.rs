//! The tasks of a worker under watch. One that ended in silence would leave a process that lives,
//! beats and does half of its work: nobody would rescue what it no longer claims, and outcomes
//! would vanish. So the worker stops, and says which task it was.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::error;

/// Watches tasks.
#[derive(Clone)]
pub(crate) struct Watched {
    /// Cancelled when one fails.
    stopping: CancellationToken,
    /// What ended before its time; the first of them.
    failure: Arc<OnceLock<String>>,
}

impl Watched {
    pub(crate) fn new(stopping: CancellationToken) -> Self {
        Self {
            stopping,
            failure: Arc::default(),
        }
    }

    /// A task that runs until the worker stops.
    pub(crate) fn task<T: Future<Output = ()>>(
        &self,
        name: &str,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let (watched, owned_name) = (self.clone(), name.to_owned());
        self.guarded(name, async move {
            task.await;
            if !watched.stopping.is_cancelled() {
                watched.fail(format!("its task \"{owned_name}\" ended before its time"));
            }
        })
    }

    /// A task that may end at any time, but not by a panic.
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

    /// What failed first.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Something that the worker cannot do without has ended: it stops, in as good an order as it
    /// can.
    fn fail(&self, what: String) {
        tracing::error!(
            error = what,
            "a task of the engine failed; the worker stops"
        );
        // The first failure is the cause; what follows it may be its effect.
        let _ = self.failure.set(what);
        self.stopping.cancel();
    }
}
