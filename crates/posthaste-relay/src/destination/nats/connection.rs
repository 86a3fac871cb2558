//! A connection to NATS, and what the server has said on it.

use async_nats::{Client, Request, RequestError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::wire;
use crate::destination::reason::{Failure, Reason};

/// A connection, and whether it was lost since: its client would open another by itself, and nobody
/// would know what became of that which was under way.
pub(super) struct Live {
    pub(super) client: Client,
    pub(super) gone: CancellationToken,
    /// What the account may not do, as the server has said since the connection began.
    pub(super) violations: watch::Receiver<Vec<wire::Violation>>,
}

impl Live {
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

    /// Comes when the server has said that the account may not do what this subject needs. What it
    /// has said holds for as long as the connection: it is dropped then.
    async fn denied(&self, subject: &str) -> Reason {
        let mut violations = self.violations.clone();
        loop {
            if let Some(denied) = wire::denied(&violations.borrow_and_update(), subject) {
                return denied;
            }
            if violations.changed().await.is_err() {
                // Nobody listens any more: the connection is gone, which is said elsewhere.
                std::future::pending::<()>().await;
            }
        }
    }

    /// What it comes to, unless the connection is lost before.
    pub(super) async fn unless_gone<T>(&self, asked: impl Future<Output = T>) -> Result<T, Reason> {
        tokio::select! {
            answered = asked => Ok(answered),
            () = self.gone.cancelled() => {
                Err(Reason::of(Failure::Connect, "NATS: the connection was lost"))
            }
        }
    }
}
