//! Takes tasks and sends their mails. Whatever dies whenever: for each mail, no more are sent than
//! one and one for each time that somebody said "unknown".

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use posthaste_relay::{Answer, Destination, Message, Smtp};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::deliveries::{Begun, Deliveries};
use super::queue::{End, Lease, Queue};

/// An empty queue is looked at again after this.
const IDLE: Duration = Duration::from_millis(100);
/// A mail that was rescheduled comes back after this.
const AGAIN: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Worker {
    pub queue: Queue,
    pub deliveries: Deliveries,
    pub smtp: Arc<Smtp>,
    /// How long a server may take for a mail.
    pub time_limit: Duration,
}

impl Worker {
    /// Works until it is told to stop; the mail in hand is finished first.
    pub async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let pause = match self.step().await {
                Ok(true) => continue,
                Ok(false) => IDLE,
                Err(error) => {
                    tracing::warn!(error, "the queue or the database does not answer");
                    10 * IDLE
                }
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
        }
    }

    /// One task, if one waits.
    pub async fn step(&self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        self.queue.tend().await?;
        match self.queue.take().await? {
            Some(lease) => self.work(lease).await.map(|()| true),
            None => Ok(false),
        }
    }

    async fn work(&self, mut lease: Lease) -> Result<(), Box<dyn Error + Send + Sync>> {
        let token = Uuid::new_v4();
        let (recipient, subject, body) = match self.deliveries.begin(lease.id, token).await? {
            Begun::Mail {
                recipient,
                subject,
                body,
            } => (recipient, subject, body),
            Begun::Unknown | Begun::Over => {
                self.queue.end(&lease, End::Archived).await?;
                return Ok(());
            }
        };
        let mail = Message::new(lease.id, "mail:send", body)
            .header("to", recipient)
            .header("subject", subject);
        let answer = self.send(&mail, &mut lease).await;
        let (state, reason, end) = meaning(answer);
        let told = self
            .deliveries
            .finish(lease.id, token, state, reason.as_deref());
        if let Err(error) = told.await {
            // The queue knows that it was sent, and says so to the one that reconciles. Anything
            // else is unknown when the lease ends.
            if end == End::Completed {
                self.queue.end(&lease, end).await?;
            }
            return Err(error);
        }
        self.queue.end(&lease, end).await?;
        Ok(())
    }

    /// Sends, and keeps the task meanwhile.
    async fn send(&self, mail: &Message, lease: &mut Lease) -> Answer {
        let batch = std::slice::from_ref(mail);
        let sent = tokio::time::timeout(self.time_limit, self.smtp.send(batch));
        let mut sent = std::pin::pin!(sent);
        let answers = loop {
            tokio::select! {
                answers = &mut sent => break answers,
                () = tokio::time::sleep(self.queue.lease() / 3) => {
                    // The one that lost it finishes all the same: what was begun cannot be taken
                    // back.
                    let _ = self.queue.renew(lease).await;
                }
            }
        };
        let late = || Answer::Unavailable {
            reason: "no answer in time".into(),
        };
        match answers {
            Ok(mut answers) => answers.pop().unwrap_or_else(late),
            Err(_) => self.smtp.recall(mail.id).unwrap_or_else(late),
        }
    }
}

/// What an answer means for the row, and for the task.
fn meaning(answer: Answer) -> (&'static str, Option<String>, End) {
    match answer {
        Answer::Accepted => ("sent", None, End::Completed),
        Answer::Rejected { reason } => ("failed", Some(reason), End::Archived),
        Answer::Retry { reason, after } => {
            ("queued", Some(reason), End::Later(after.unwrap_or(AGAIN)))
        }
        Answer::Unavailable { reason } | Answer::Backpressure { reason } => {
            ("queued", Some(reason), End::Later(10 * IDLE))
        }
        Answer::Ambiguous { reason } => ("unknown", Some(reason), End::Archived),
    }
}
