//! The tasks of the engine under watch. One that ended in silence would leave a process that lives, beats and does half of its work: nobody
//! would rescue what it no longer claims, and outcomes would vanish. So the worker stops, and says which task it was.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::{Arc, Engine};
use crate::error;

impl Engine {
    /// A task that runs until the engine stops.
    pub(crate) fn watched<T: Future<Output = ()>>(
        self: &Arc<Self>,
        name: &str,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let (engine, told) = (Arc::clone(self), name.to_owned());
        self.guarded(name, async move {
            task.await;
            if !engine.stopping.is_cancelled() {
                engine.fail(format!("its task \"{told}\" ended before its time"));
            }
        })
    }

    /// A task that may end at any time, but not by a panic.
    pub(crate) fn guarded<T: Future<Output = ()>>(
        self: &Arc<Self>,
        name: &str,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let (engine, name) = (Arc::clone(self), name.to_owned());
        async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let panic = error::panic_text(&*panic);
                engine.fail(format!("its task \"{name}\" panicked: {panic}"));
            }
        }
    }

    /// The task that takes the outcomes: without it nothing is settled any more, so nothing is waited for.
    pub(super) fn watched_to_the_end<T: Future<Output = ()>>(
        self: &Arc<Self>,
        name: &str,
        task: T,
    ) -> impl Future<Output = ()> + use<T> {
        let deaf = self.deaf.clone().drop_guard();
        let watched = self.watched(name, task);
        async move {
            let _deaf = deaf;
            watched.await;
        }
    }

    /// Something that the worker cannot do without has ended: it stops, in as good an order as it can.
    fn fail(&self, what: String) {
        tracing::error!("{what}; the worker stops");
        // The first failure is the cause; what follows it may be its effect.
        let _ = self.failure.set(what);
        self.stopping.cancel();
    }
}
