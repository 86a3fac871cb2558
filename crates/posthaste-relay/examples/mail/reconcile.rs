//! Three ways to a mail of which nobody knows: ask the provider, queue it again and believe the
//! queue when it says that the work was done, and be told of it at once instead of looking every
//! second.
//!
//! The queue is believed anyone who it was that completed the task: a mail whose task any other
//! worker of asynq has completed counts as sent.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::time::Duration;

use posthaste::Backoff;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};
use uuid::Uuid;

use super::deliveries::{Deliveries, Open, OpenQuery, PAGE};
use super::queue::Queue;

/// How often mails are polled without a notification.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Before a mail is sent again of which nobody knows, or that has failed.
pub const RESENDS: Backoff = Backoff {
    base: Duration::from_secs(30),
    cap: Duration::from_secs(3600),
};
/// Before what failed is tried again, longer each time.
const PAUSES: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};
/// After this many failures in a row something is down: the rest of the page waits.
const IN_VAIN: u32 = 3;

/// The one that can be asked whether it has a mail, by its Message-ID: many providers can.
pub trait Provider {
    /// Whether it has it; nothing when it cannot tell.
    fn has(&self, id: Uuid) -> impl Future<Output = Option<bool>> + Send;
}

/// A provider that cannot be asked.
pub struct UnqueryableProvider;

impl Provider for UnqueryableProvider {
    async fn has(&self, _id: Uuid) -> Option<bool> {
        None
    }
}

pub struct Reconciler<P> {
    pub deliveries: Deliveries,
    pub queue: Queue,
    pub provider: P,
    pub poll_interval: Duration,
    /// After this many seconds a mail that waits may have lost its task, and one that is being sent
    /// its worker.
    pub patience: f64,
    /// Before a mail is sent again, longer after each attempt: what the provider lacks now it may
    /// have in a while, and what it never takes is not to be sent at it all the time.
    pub resends: Backoff,
    /// Whether a mail of which nobody knows is sent again: twice rather than never.
    pub resends_unknown: bool,
    /// Whether a mail that was refused is tried again.
    pub retries_failed: bool,
}

impl<P: Provider> Reconciler<P> {
    /// Polls for open mails, at once after a notification; logs and retries failures.
    pub async fn run(&self, url: &str) -> Infallible {
        let mut listening = None;
        let mut failures = 0u32;
        loop {
            let pass = async {
                if listening.is_none() {
                    listening = Some(failed_mails(url).await?);
                }
                self.pass().await
            };
            let failed = match pass.await {
                Ok(_) if failures > 0 => {
                    tracing::info!("mails are reconciled again");
                    failures = 0;
                    false
                }
                Ok(_) => false,
                Err(error) => {
                    failures += 1;
                    record_failure(error, failures);
                    true
                }
            };
            let has_ended = match &mut listening {
                // Polls find mails whose notification was lost.
                Some((_, mails)) if !failed => {
                    let next = tokio::time::timeout(self.poll_interval, mails.recv()).await;
                    // One pass handles all notifications so far.
                    while mails.try_recv().is_ok() {}
                    matches!(next, Ok(None))
                }
                Some((_, mails)) => mails.is_closed(),
                None => true,
            };
            if has_ended {
                listening = None;
            }
            if has_ended || failed {
                tokio::time::sleep(PAUSES.after(failures.saturating_sub(1), fastrand::f64())).await;
            }
        }
    }

    /// Handles all open mails once and returns how many changed their state. A mail that fails
    /// does not block others: the first error is returned at the end of its page, or after several
    /// failures in a row.
    pub async fn pass(&self) -> Result<usize, Box<dyn Error + Send + Sync>> {
        let query = OpenQuery {
            patience: self.patience,
            retries_failed: self.retries_failed,
            pause: self.resends,
            since: self.deliveries.now().await?,
        };
        let mut moved = 0;
        loop {
            let page = self.deliveries.list_open(&query).await?;
            let (mut failed, mut in_vain) = (None, 0);
            for mail in &page {
                match self.one(mail).await {
                    Ok(is_moved) => {
                        moved += usize::from(is_moved);
                        in_vain = 0;
                    }
                    Err(error) => {
                        failed = failed.or(Some(error));
                        in_vain += 1;
                    }
                }
                if in_vain == IN_VAIN {
                    break;
                }
            }
            match failed {
                Some(error) => return Err(error),
                None if page.len() < PAGE => return Ok(moved),
                None => {}
            }
        }
    }

    async fn one(&self, mail: &Open) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let (id, state) = (mail.id, mail.state.as_str());
        match state {
            "failed" if self.retries_failed && mail.is_due => self.queue_again(id, state).await,
            "unknown" => match self.provider.has(id).await {
                Some(true) => {
                    let reason = "the provider has it";
                    self.deliveries.resolve(id, state, "sent", reason).await
                }
                Some(false) if mail.is_due => self.queue_again(id, state).await,
                None if mail.is_due && self.resends_unknown => self.queue_again(id, state).await,
                _ => Ok(false),
            },
            // The worker that takes it finds out that the one before was lost.
            "queued" | "sending" => self.is_queued(id, state).await,
            _ => Ok(false),
        }
    }

    /// First the row, then the queue: a worker that took the task before would find nothing to do.
    /// Who dies between the two leaves a row that waits without a task, and the next pass finds it.
    pub async fn queue_again(
        &self,
        id: Uuid,
        state: &str,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let reason = "queued again";
        Ok(self.deliveries.resolve(id, state, "queued", reason).await?
            && self.is_queued(id, "queued").await?)
    }

    /// Sees to it that the mail has a task. A queue that says that this work was done is right:
    /// only mails that were sent are completed there.
    async fn is_queued(&self, id: Uuid, state: &str) -> Result<bool, Box<dyn Error + Send + Sync>> {
        match self.queue.again(id).await?.as_str() {
            "completed" => {
                let reason = "the queue had processed it already";
                self.deliveries.resolve(id, state, "sent", reason).await
            }
            was => Ok(matches!(was, "archived" | "missing")),
        }
    }
}

/// Once for each doubling of the failures in a row: an outage is no news every time.
fn record_failure(error: Box<dyn Error + Send + Sync>, failures: u32) {
    if failures.is_power_of_two() {
        tracing::warn!(error, failures, "mails cannot be reconciled; trying again");
    }
}

/// Ids of mails that fail or become unknown from now on, as long as the client lives.
pub async fn failed_mails(
    url: &str,
) -> Result<(Client, UnboundedReceiver<Uuid>), Box<dyn Error + Send + Sync>> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (send, mails) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && let Ok(id) = notification.payload().parse()
                && send.send(id).is_err()
            {
                return;
            }
        }
    });
    client.batch_execute("LISTEN mail_deliveries").await?;
    Ok((client, mails))
}
