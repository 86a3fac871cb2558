//! What a consumer's task beside the claims knows of its worker.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::identity::Registration;
use crate::store::parameter::Parameter;
use crate::store::reconnecting::ReconnectingClient;

/// What a consumer's [task](super::Consumer::background_task) knows of the worker, and a connection
/// to its database.
pub struct ConsumerContext {
    pub(crate) queue: Arc<str>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) link: Arc<ReconnectingClient>,
    pub(crate) rescue_after: Duration,
    /// Nothing runs any more.
    pub(crate) ended: CancellationToken,
}

impl ConsumerContext {
    /// The same with a connection of its own: the tasks of all consumers share one otherwise, and
    /// wait for each other's statements.
    pub fn with_connection(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            registration: Arc::clone(&self.registration),
            link: Arc::new(self.link.another()),
            rescue_after: self.rescue_after,
            ended: self.ended.clone(),
        }
    }

    /// The queue whose jobs the consumer takes.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// How long a worker may be silent until it is declared dead.
    pub fn rescue_after(&self) -> Duration {
        self.rescue_after
    }

    /// Who the worker is in `posthaste.worker`: another one after it was declared dead.
    pub async fn worker(&self) -> Result<i64, Error> {
        self.registration.worker().await.map(|worker| worker.id)
    }

    /// Completes when the worker is not this one any more; with none, when it is anybody again.
    pub async fn changed(&self, from: Option<i64>) {
        let mut identity = self.registration.subscribe();
        let is_another = identity.wait_for(|now| now.as_ref().map(|worker| worker.id) != from);
        // Its sender is the registration, which lives here.
        let _ = is_another.await;
    }

    /// Completes when nothing runs any more: the task does what is left to be done and ends, within
    /// half a minute. The worker deregisters after it.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Runs one statement in a short transaction of its own, READ COMMITTED and with `pg_catalog`
    /// alone for names without a schema. An error for which [`Error::is_connection`] holds leaves
    /// open whether it took effect; `what` says what could not be done.
    pub async fn fetch(
        &self,
        what: &'static str,
        sql: &'static str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        self.link.fetch(what, sql, parameters).await
    }
}
