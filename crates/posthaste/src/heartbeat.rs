//! The heartbeat: a thread, a runtime and a connection of its own, so that nothing a handler or a busy engine does can stop it.

use std::sync::Arc;
use std::thread::JoinHandle;

use deadpool_postgres::Pool;

use crate::engine::Engine;
use crate::store;
use crate::store::link::Link;

/// Starts the thread; it ends with the engine.
pub(crate) fn start(engine: Arc<Engine>, pool: Pool) -> Result<JoinHandle<()>, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("posthaste-heart".into())
        .spawn(move || {
            let beats = beat(Arc::clone(&engine), Link::new(pool));
            runtime.block_on(engine.watched("heartbeat", beats));
        })
}

async fn beat(engine: Arc<Engine>, link: Link) {
    let mut identity = engine.identity.subscribe();
    loop {
        let worker = *identity.borrow_and_update();
        if let Some(worker) = worker {
            match store::beat(&link, worker).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(
                        worker,
                        "this worker was declared dead; it goes on under a new id"
                    );
                    engine.forget_worker(worker);
                }
                Err(error) => tracing::warn!(worker, %error, "a heartbeat failed"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(engine.config.heartbeat_interval) => {}
            // A new identity beats at once: the leader's watch over it begins with the first beat it sees.
            _ = identity.changed() => {}
            () = engine.stopped.cancelled() => return,
        }
    }
}
