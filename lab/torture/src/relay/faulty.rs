//! Destinations with a frequent fault, messages that break the connection, and with deliberate
//! bugs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::Error;
use posthaste_relay::{Answer, Destination, Message, UnsafeSetting};
use uuid::Uuid;

use crate::bugs::Misbehavior;

/// A destination on which messages of jobs that must be exhausted break the connection, before
/// anything is sent.
pub(super) struct FaultyDestination<D> {
    inner: Arc<D>,
    misbehavior: Option<Misbehavior>,
    /// Whether such a message was sent since the last probe.
    has_met: AtomicBool,
}

impl<D: Destination> FaultyDestination<D> {
    pub(super) fn new(inner: D, misbehavior: Option<Misbehavior>) -> Self {
        Self {
            inner: Arc::new(inner),
            misbehavior,
            has_met: AtomicBool::new(false),
        }
    }

    async fn misbehave(&self, misbehavior: Misbehavior, batch: &[Message]) -> Vec<Answer> {
        match misbehavior {
            Misbehavior::AnswersFirst => {
                let (inner, later) = (Arc::clone(&self.inner), batch.to_vec());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    inner.send(&later).await;
                });
                vec![Answer::Accepted; batch.len()]
            }
            Misbehavior::TakesSilenceForYes | Misbehavior::BlamesTheMessage => {
                let answers = self.inner.send(batch).await.into_iter();
                let answer = |answer| match (answer, misbehavior) {
                    (Answer::Unavailable { reason }, Misbehavior::BlamesTheMessage) => {
                        let after = None;
                        Answer::Retry { reason, after }
                    }
                    (Answer::Unavailable { .. }, _) => Answer::Accepted,
                    (answer, _) => answer,
                };
                answers.map(answer).collect()
            }
            Misbehavior::DropsTheLast => {
                let most = batch.len() - usize::from(batch.len() > 1);
                let mut answers = self.inner.send(&batch[..most]).await;
                answers.resize(batch.len(), Answer::Accepted);
                answers
            }
            Misbehavior::NamesAnew => {
                let mut renamed = batch.to_vec();
                for message in &mut renamed {
                    message.id = Uuid::new_v4();
                }
                self.inner.send(&renamed).await
            }
            // Receivers have different latencies: a relay that sends one message after the other
            // waits for each.
            Misbehavior::SendsSideBySide => {
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..50))).await;
                self.inner.send(batch).await
            }
            _ => self.inner.send(batch).await,
        }
    }
}

fn costs_the_connection(message: &Message) -> bool {
    message.payload().contains("\"Exhaust\"")
}

impl<D: Destination> Destination for FaultyDestination<D> {
    fn label(&self) -> String {
        self.inner.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            if batch.iter().any(costs_the_connection) {
                self.has_met.store(true, Ordering::Relaxed);
                let reason = "the connection was closed".into();
                return vec![Answer::Unavailable { reason }; batch.len()];
            }
            match self.misbehavior {
                Some(misbehavior) => self.misbehave(misbehavior, batch).await,
                None => self.inner.send(batch).await,
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let has_met = self.has_met.swap(false, Ordering::Relaxed);
            // A relay that treats every silence as an outage never isolates the message that causes
            // it.
            if has_met && self.misbehavior == Some(Misbehavior::IsolatesNothing) {
                return Err("the connection was closed".into());
            }
            self.inner.probe().await
        })
    }

    fn unsafe_settings(
        &self,
        longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        self.inner.unsafe_settings(longest_outage)
    }
}
