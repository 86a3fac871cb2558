//! Who a worker process is to the database.

use std::sync::Arc;

use super::Engine;
use crate::error::Error;
use crate::job::Incarnations;
use crate::store;

/// A worker as the database knows it. Its batches keep it, so that a job's delivery id is of the claim's time, whatever happened to the server since.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) incarnations: Incarnations,
}

impl Engine {
    /// Who this process is in `posthaste.worker`; taken when it is first asked for, and anew when the old one was declared dead.
    pub(crate) async fn worker(&self) -> Result<Arc<Identity>, Error> {
        let _one_at_a_time = self.registering.lock().await;
        if let Some(worker) = &*self.identity.borrow() {
            return Ok(Arc::clone(worker));
        }
        let (id, incarnations) = store::register(&self.claims, &self.config.name).await?;
        let worker = Arc::new(Identity { id, incarnations });
        self.identity.send_replace(Some(Arc::clone(&worker)));
        Ok(worker)
    }

    /// The database does not count this worker among the living any more. It may say so late, when we live under a new id already: that one stays,
    /// or nobody would beat for it while its jobs run.
    pub(crate) fn forget_worker(&self, declared_dead: i64) {
        self.identity.send_if_modified(|identity| {
            identity
                .take_if(|worker| worker.id == declared_dead)
                .is_some()
        });
    }
}
