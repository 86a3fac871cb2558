//! A connection to NATS, and the errors that the server sent on it.

use async_nats::{Client, Request, RequestError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::wire;
use crate::destination::reason::{Failure, Reason};

/// A connection, and whether it was lost: its client would reconnect by itself, and the outcome of
/// messages in flight would be unknown.
pub(super) struct NatsConnection {
    pub(super) client: Client,
    pub(super) gone: CancellationToken,
    /// Denied permissions that the server reported since the connection was opened.
    pub(super) violations: watch::Receiver<Vec<wire::Violation>>,
}

impl NatsConnection {
    /// Returns the answer to a request, or that the account lacks the permission to send it or to
    /// receive the answer: the server drops such a request without an answer.
    pub(super) async fn request(
        &self,
        subject: &str,
        request: Request,
    ) -> Result<Result<async_nats::Message, RequestError>, Reason> {
        let answered = self.client.send_request(subject.to_owned(), request);
        tokio::select! {
            biased;
            answered = answered => Ok(answered),
            denied = self.wait_for_denial(subject) => Err(denied),
        }
    }

    /// Completes when the server reports that the account lacks a permission for this subject.
    /// Reports hold for the life of the connection, which is then closed.
    async fn wait_for_denial(&self, subject: &str) -> Reason {
        let mut violations = self.violations.clone();
        loop {
            if let Some(denied) = wire::denial_reason(&violations.borrow_and_update(), subject) {
                return denied;
            }
            if violations.changed().await.is_err() {
                // The sender ended with the connection, which is reported elsewhere.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the output, unless the connection is lost before.
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
