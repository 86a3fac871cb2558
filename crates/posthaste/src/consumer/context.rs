//! The worker as a consumer's background task sees it.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::identity::Registration;
use crate::store::parameter::Parameter;
use crate::store::reconnecting::ReconnectingClient;

/// Access of a consumer's [background task](super::Consumer::background_task) to the worker's
/// identity and its database.
pub struct ConsumerContext {
    pub(crate) queue: Arc<str>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) link: Arc<ReconnectingClient>,
    pub(crate) rescue_after: Duration,
    /// Cancelled when no jobs run any more.
    pub(crate) ended: CancellationToken,
}

impl ConsumerContext {
    /// Returns the same context with a separate connection. Otherwise the tasks of all consumers
    /// share one, and wait for each other's statements.
    pub fn with_connection(&self) -> Self {
        Self {
            queue: Arc::clone(&self.queue),
            registration: Arc::clone(&self.registration),
            link: Arc::new(self.link.another()),
            rescue_after: self.rescue_after,
            ended: self.ended.clone(),
        }
    }

    /// Returns the queue of the consumer.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns how long a worker may be without a heartbeat before it is declared dead.
    pub fn rescue_after(&self) -> Duration {
        self.rescue_after
    }

    /// Returns the id of the worker in `posthaste.worker`; it changes after the worker was declared
    /// dead.
    pub async fn worker(&self) -> Result<i64, Error> {
        self.registration.worker().await.map(|worker| worker.id)
    }

    /// Completes when the worker's id differs from this one; with `None`, when the worker has an
    /// id.
    pub async fn changed(&self, from: Option<i64>) {
        let mut identity = self.registration.subscribe();
        let is_another = identity.wait_for(|now| now.as_ref().map(|worker| worker.id) != from);
        // Its sender is the registration, which lives here.
        let _ = is_another.await;
    }

    /// Completes when no jobs run any more: the task finishes and ends within half a minute. The
    /// worker deregisters after it.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Runs one statement in a short separate transaction, READ COMMITTED and with only
    /// `pg_catalog` for names without a schema. After an error for which [`Error::is_connection`]
    /// holds, the statement may have taken effect; `what` describes in the error what failed.
    pub async fn fetch(
        &self,
        what: &'static str,
        sql: &'static str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        self.link.fetch(what, sql, parameters).await
    }
}
