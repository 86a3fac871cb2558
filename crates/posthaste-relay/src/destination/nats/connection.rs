//! A connection to NATS, and the errors that the server sent on it.

use async_nats::{Client, Request, RequestError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::wire;
use crate::destination::reason::{Failure, Reason};

/// A connection, and whether it was lost since: its client would open another by itself, and nobody
/// would know the outcome of what was in flight.
pub(super) struct NatsConnection {
    pub(super) client: Client,
    pub(super) gone: CancellationToken,
    /// What the account may not do, as the server reported since the connection was opened.
    pub(super) violations: watch::Receiver<Vec<wire::Violation>>,
}

impl NatsConnection {
    /// The answer to a request, or that the account may not ask there or hear the answer: the
    /// server drops such a request, and its answer never comes.
    pub(super) async fn request(
        &self,
        subject: &str,
        request: Request,
    ) -> Result<Result<async_nats::Message, RequestError>, Reason> {
        let answered = self.client.send_request(subject.to_owned(), request);
        tokio::select! {
            biased;
            answered = answered => Ok(answered),
            denied = self.denied(subject) => Err(denied),
        }
    }

    /// Completes when the server reports that the account lacks a permission for this subject.
    /// Reports hold for the life of the connection, which is closed then.
    async fn denied(&self, subject: &str) -> Reason {
        let mut violations = self.violations.clone();
        loop {
            if let Some(denied) = wire::denied(&violations.borrow_and_update(), subject) {
                return denied;
            }
            if violations.changed().await.is_err() {
                // The receiver is gone with the connection, which is reported elsewhere.
                std::future::pending::<()>().await;
            }
        }
    }

    /// What it comes to, unless the connection is lost before.
    pub(super) async fn unless_disconnected<T>(
        &self,
        asked: impl Future<Output = T>,
    ) -> Result<T, Reason> {
        tokio::select! {
            answered = asked => Ok(answered),
            () = self.gone.cancelled() => {
                Err(Reason::new(Failure::Connect, "NATS: the connection was lost"))
            }
        }
    }
}
