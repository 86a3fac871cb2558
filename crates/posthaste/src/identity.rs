//! Who a worker process is to the database.

mod tenure;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use crate::error::Error;
use crate::job::Epochs;
use crate::store;
use crate::store::reconnecting::ReconnectingClient;
pub(crate) use tenure::Moment;
use tenure::Tenure;

/// A worker as the database knows it. Its batches keep it, so that a job's delivery id is of the
/// claim's time, whatever happened to the server since.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    pub(crate) epochs: Epochs,
    pub(crate) tenure: Tenure,
}

/// The identity that this process has now.
pub(crate) struct Registration {
    link: Arc<ReconnectingClient>,
    name: String,
    queues: Vec<Arc<str>>,
    rescue_after: Duration,
    /// Notified when the worker was declared dead.
    lost: Box<dyn Fn() + Send + Sync>,
    identity: watch::Sender<Option<Arc<Identity>>>,
    one_at_a_time: Mutex<()>,
    /// A death is logged once, even if two threads notice it.
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

    /// Who this process is in `posthaste.worker`; taken when it is first asked for, and anew when
    /// the old one was declared dead.
    pub(crate) async fn worker(&self) -> Result<Arc<Identity>, Error> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        if let Some(worker) = self.known() {
            return Ok(worker);
        }
        let queues: Vec<&str> = self.queues.iter().map(|queue| &**queue).collect();
        let sent = Moment::now();
        let (id, epochs) = store::register(&self.link, &self.name, &queues).await?;
        let tenure = Tenure::new(self.rescue_after, sent);
        let worker = Arc::new(Identity { id, epochs, tenure });
        self.identity.send_replace(Some(Arc::clone(&worker)));
        Ok(worker)
    }

    /// As [`worker`](Self::worker), but of one that lives: where others may have rescued its jobs,
    /// the database is asked first.
    pub(crate) async fn living(&self) -> Result<Arc<Identity>, Error> {
        let worker = self.worker().await?;
        if !worker.tenure.is_over() {
            return Ok(worker);
        }
        let sent = Moment::now();
        if store::beat(&self.link, worker.id, None).await?.is_some() {
            worker.tenure.renew(sent);
            return Ok(worker);
        }
        self.forget(worker.id);
        self.worker().await
    }

    /// Who it is, if it is anybody now.
    pub(crate) fn known(&self) -> Option<Arc<Identity>> {
        self.identity.borrow().clone()
    }

    /// Tells of each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<Identity>>> {
        self.identity.subscribe()
    }

    /// The database does not count this worker among the living any more. It may say so late, when
    /// we live under a new id already: that one stays, or nobody would beat for it while its jobs
    /// run.
    pub(crate) fn forget(&self, declared_dead: i64) {
        let _once = self.forgetting.lock();
        let is_it = |worker: &Arc<Identity>| worker.id == declared_dead;
        if !self.identity.borrow().as_ref().is_some_and(is_it) {
            return;
        }
        tracing::warn!(
            worker = declared_dead,
            "this worker was declared dead; it continues under a new id"
        );
        // What it had comes first: nothing is claimed under another id before that.
        (self.lost)();
        self.identity.send_if_modified(|identity| {
            let dead = identity.take_if(|worker| is_it(worker));
            dead.as_ref().inspect(|dead| dead.tenure.end()).is_some()
        });
    }

    /// The worker has ended and has no jobs left; `is_sure`: nor a claim of which that is not
    /// known.
    pub(crate) async fn sign_off(&self, is_sure: bool) {
        let worker = self.known().map(|worker| worker.id);
        if let Some(worker) = worker
            && let Err(error) = store::stop(&self.link, worker, is_sure).await
        {
            tracing::warn!(%error, "the worker could not deregister");
        }
    }

    /// For tests without a database.
    #[cfg(test)]
    pub(crate) fn set(&self, id: i64) {
        let epochs = Epochs::new(vec![0], vec![uuid::Uuid::nil()]);
        let tenure = Tenure::new(self.rescue_after, Moment::now());
        self.identity
            .send_replace(Some(Arc::new(Identity { id, epochs, tenure })));
    }
}
