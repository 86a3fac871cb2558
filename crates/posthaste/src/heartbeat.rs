//! The heartbeat: a thread, a runtime and a connection of its own, so that nothing a handler or a busy engine does can stop it.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use deadpool_postgres::Pool;

use crate::engine::{Engine, Identity};
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

/// Beats for the identity that claims, and for each before it of which something still runs: after a failover the worker goes on under a new id,
/// and the jobs that it had before are not to be rescued from it while it works on them.
async fn beat(engine: Arc<Engine>, link: Link) {
    let mut identity = engine.identity.subscribe();
    let mut known: Vec<Weak<Identity>> = Vec::new();
    loop {
        if let Some(worker) = &*identity.borrow_and_update() {
            let newest = Arc::downgrade(worker);
            if !known.iter().any(|one| one.ptr_eq(&newest)) {
                known.push(newest);
            }
        }
        let ids: Vec<Option<i64>> = known
            .iter()
            .map(|one| one.upgrade().map(|worker| worker.id))
            .collect();
        let mut lives = Vec::with_capacity(ids.len());
        for id in ids {
            lives.push(match id {
                Some(id) => is_living(&engine, &link, id).await,
                None => false,
            });
        }
        let mut lives = lives.into_iter();
        known.retain(|_| lives.next().unwrap_or(false));
        tokio::select! {
            () = tokio::time::sleep(engine.config.heartbeat_interval) => {}
            // A new identity beats at once: the leader's watch over it begins with the first beat it sees.
            _ = identity.changed() => {}
            () = engine.stopped.cancelled() => return,
        }
    }
}

/// One beat; false when the database does not count this worker among the living any more.
async fn is_living(engine: &Engine, link: &Link, worker: i64) -> bool {
    match store::beat(link, worker).await {
        Ok(true) => true,
        Ok(false) => {
            tracing::warn!(
                worker,
                "this worker was declared dead; it goes on under a new id"
            );
            engine.forget_worker(worker);
            false
        }
        Err(error) => {
            tracing::warn!(worker, %error, "a heartbeat failed");
            true
        }
    }
}
