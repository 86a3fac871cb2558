//! Three methods to resolve a mail whose outcome is unknown: ask the provider, queue the mail again
//! and trust the queue if it reports that the work was done, and be notified at once instead of
//! polling every second.
//!
//! The queue does not record which worker completed a task: a mail whose task any other asynq
//! worker has completed counts as sent.

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
/// Delays before a mail is sent again that failed or whose outcome is unknown.
pub const RESENDS: Backoff = Backoff {
    base: Duration::from_secs(30),
    cap: Duration::from_secs(3600),
};
/// Delays after failures in a row.
const PAUSES: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(30),
};
/// After this many failures in a row a service is probably down: the rest of the page waits.
const IN_VAIN: u32 = 3;

/// A mail provider that can be asked for a mail by its Message-ID, as many can.
pub trait Provider {
    /// Returns whether it has the mail; `None` if it cannot tell.
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
    /// Delays before a mail is sent again, longer after each attempt: the provider may receive it
    /// later, and must not be flooded with mails that it never accepts.
    pub resends: Backoff,
    /// Whether a mail whose outcome is unknown is sent again: at least once.
    pub resends_unknown: bool,
    /// Whether a mail that was rejected is tried again.
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
            // The worker that takes the task detects that the previous one was lost.
            "queued" | "sending" => self.is_queued(id, state).await,
            _ => Ok(false),
        }
    }

    /// Updates the row, then the queue: a worker that took the task before the update would find
    /// nothing to do. A process that dies between the two leaves a waiting row without a task, and
    /// the next pass finds it.
    pub async fn queue_again(
        &self,
        id: Uuid,
        state: &str,
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let reason = "queued again";
        Ok(self.deliveries.resolve(id, state, "queued", reason).await?
            && self.is_queued(id, "queued").await?)
    }

    /// Ensures that the mail has a task. If the queue reports that its work was done, that is
    /// right: only mails that were sent are completed there.
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

/// Logs once for each doubling of the failures in a row, so that an outage does not fill the log.
fn record_failure(error: Box<dyn Error + Send + Sync>, failures: u32) {
    if failures.is_power_of_two() {
        tracing::warn!(error, failures, "mails cannot be reconciled; trying again");
    }
}

/// Returns ids of mails that fail or become unknown from now on, while the client lives.
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
