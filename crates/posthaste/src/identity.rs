//! The identity of a worker process in the database.

mod tenure;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use crate::error::Error;
use crate::job::Epochs;
use crate::store;
use crate::store::reconnecting::ReconnectingClient;
pub(crate) use tenure::ClockPair;
use tenure::Tenure;

/// A registered worker. Its batches share it, so that the delivery id of a job is that of the time
/// of its claim, even if the server was restored since.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) epochs: Epochs,
    pub(crate) tenure: Tenure,
}

/// The current identity of this process.
pub(crate) struct Registration {
    link: Arc<ReconnectingClient>,
    name: String,
    queues: Vec<Arc<str>>,
    rescue_after: Duration,
    /// Called when the worker was declared dead.
    lost: Box<dyn Fn() + Send + Sync>,
    identity: watch::Sender<Option<Arc<Identity>>>,
    one_at_a_time: Mutex<()>,
    /// Serializes [`remove_dead`](Self::remove_dead): a death is logged once, even if two threads
    /// notice it.
    forgetting: parking_lot::Mutex<()>,
}

impl Registration {
    pub(crate) fn new(
        link: Arc<ReconnectingClient>,
        name: String,
        queues: Vec<Arc<str>>,
        rescue_after: Duration,
        lost: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            link,
            name,
            queues,
            rescue_after,
            lost: Box::new(lost),
            identity: watch::Sender::new(None),
            one_at_a_time: Mutex::new(()),
            forgetting: parking_lot::Mutex::new(()),
        }
    }

    /// Returns the row of this process in `posthaste.worker`. Registers at the first call, and
    /// again after the old id was declared dead.
    pub(crate) async fn worker(&self) -> Result<Arc<Identity>, Error> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if let Some(worker) = self.current() {
            return Ok(worker);
        }
        let queues: Vec<&str> = self.queues.iter().map(|queue| &**queue).collect();
        let sent = ClockPair::now();
        let (id, epochs) = store::register(&self.link, &self.name, &queues).await?;
        let tenure = Tenure::new(self.rescue_after, sent);
        let worker = Arc::new(Identity { id, epochs, tenure });
        self.identity.send_replace(Some(Arc::clone(&worker)));
        Ok(worker)
    }

    /// As [`worker`](Self::worker), but alive: if other workers may have rescued its jobs, sends a
    /// heartbeat first.
    pub(crate) async fn alive_worker(&self) -> Result<Arc<Identity>, Error> {
        let worker = self.worker().await?;
        if !worker.tenure.is_over() {
            return Ok(worker);
        }
        let sent = ClockPair::now();
        if store::record_heartbeat(&self.link, worker.id, None)
            .await?
            .is_some()
        {
            worker.tenure.renew(sent);
            return Ok(worker);
        }
        self.remove_dead(worker.id);
        self.worker().await
    }

    /// Returns the current identity, `None` if there is none.
    pub(crate) fn current(&self) -> Option<Arc<Identity>> {
        self.identity.borrow().clone()
    }

    /// Subscribes to changes of the identity.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<Identity>>> {
        self.identity.subscribe()
    }

    /// Removes an identity that the database declared dead. The report may arrive after this
    /// process has registered under a new id: the new id stays, or no heartbeat would be sent for
    /// it while its jobs run.
    pub(crate) fn remove_dead(&self, declared_dead: i64) {
        let _once = self.forgetting.lock();
        let is_it = |worker: &Arc<Identity>| worker.id == declared_dead;
        if !self.identity.borrow().as_ref().is_some_and(is_it) {
            return;
        }
        tracing::warn!(
            worker = declared_dead,
            "this worker was declared dead; it continues under a new id"
        );
        // The callback runs first, so that the old claims are released before any claim under
        // another id.
        (self.lost)();
        self.identity.send_if_modified(|identity| {
            let dead = identity.take_if(|worker| is_it(worker));
            dead.as_ref().inspect(|dead| dead.tenure.end()).is_some()
        });
    }

    /// Deregisters the worker, which has ended and has no jobs left. `is_sure`: it also has no
    /// claim of unknown outcome.
    pub(crate) async fn deregister(&self, is_sure: bool) {
        let worker = self.current().map(|worker| worker.id);
        if let Some(worker) = worker
            && let Err(error) = store::stop(&self.link, worker, is_sure).await
        {
            tracing::warn!(
                %error,
                "the worker could not deregister; its jobs, if any, will be rescued"
            );
        }
    }

    /// Sets an identity in tests without a database.
    #[cfg(test)]
    pub(crate) fn set_for_test(&self, id: i64) {
        let epochs = Epochs::new(vec![0], vec![uuid::Uuid::nil()]);
        let tenure = Tenure::new(self.rescue_after, ClockPair::now());
        self.identity
            .send_replace(Some(Arc::new(Identity { id, epochs, tenure })));
    }
}
