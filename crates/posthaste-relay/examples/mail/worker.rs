//! Takes tasks and sends their mails. Whatever process dies at any time, a mail is sent at most
//! once, plus once for each time that its state became "unknown".

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use posthaste::Backoff;
use posthaste_relay::{Answer, Destination, Message, Smtp};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::deliveries::{Begun, Deliveries, Outcome};
use super::queue::{End, Lease, Queue};

/// Time between two reads of an empty queue.
const IDLE: Duration = Duration::from_millis(100);
/// Delay of a mail that waits because of the server.
const MOMENT: Duration = Duration::from_secs(1);
/// Delays after Redis or Postgres did not answer.
const UNANSWERED: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(10),
};
/// Delays between the attempts of a mail that the server refuses temporarily.
pub const RETRIES: Backoff = Backoff {
    base: Duration::from_secs(30),
    cap: Duration::from_secs(3600),
};
/// Delays between the probes of a server that is down.
pub const OUTAGE: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(60),
};

#[derive(Clone)]
pub struct Worker {
    pub queue: Queue,
    pub deliveries: Deliveries,
    pub smtp: Arc<Smtp>,
    /// How long a server may take for a mail.
    pub time_limit: Duration,
    pub retries: Backoff,
    pub outage: Backoff,
}

/// The result of one step at the queue.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// No task waits.
    Idle,
    /// A task has ended.
    Worked,
    /// A task returned to the queue, because the mail server is down.
    Down(String),
}

impl Worker {
    /// Works until it is stopped; finishes the current mail first.
    pub async fn run(&self, stop: CancellationToken) {
        let (mut outages, mut unanswered) = (0, 0);
        while !stop.is_cancelled() {
            let pause = match self.step().await {
                Ok(Step::Worked) => {
                    (outages, unanswered) = (0, 0);
                    continue;
                }
                Ok(Step::Idle) => {
                    unanswered = 0;
                    IDLE
                }
                Ok(Step::Down(reason)) => {
                    tracing::warn!(
                        reason,
                        "the mail server is down: no mail is taken meanwhile"
                    );
                    tokio::select! {
                        () = self.outlast(&mut outages) => {}
                        () = stop.cancelled() => {}
                    }
                    continue;
                }
                Err(error) => {
                    tracing::warn!(error, "the queue or the database does not answer");
                    unanswered += 1;
                    UNANSWERED.after(unanswered - 1, fastrand::f64())
                }
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = stop.cancelled() => {} }
        }
    }

    /// Waits until the mail server answers, with growing delays. An answer does not show that it
    /// accepts mails: the delay is reset only after it accepted one.
    async fn outlast(&self, outages: &mut u32) {
        loop {
            tokio::time::sleep(self.outage.after(*outages, fastrand::f64())).await;
            *outages += 1;
            match self.smtp.probe().await {
                Ok(()) => break tracing::info!("the mail server answers again"),
                Err(reason) => tracing::warn!(reason, "the mail server is still down"),
            }
        }
    }

    /// Runs one task, if one waits.
    pub async fn step(&self) -> Result<Step, Box<dyn Error + Send + Sync>> {
        self.queue.tend().await?;
        match self.queue.take().await? {
            Some(lease) => self.work(lease).await,
            None => Ok(Step::Idle),
        }
    }

    async fn work(&self, mut lease: Lease) -> Result<Step, Box<dyn Error + Send + Sync>> {
        let (id, token) = (lease.id, Uuid::new_v4());
        let mail = match self.deliveries.begin(id, token).await? {
            Begun::Mail {
                recipient,
                subject,
                body,
            } => mail(id, &recipient, &subject, &body),
            Begun::Unknown => {
                tracing::warn!(%id, "it is unknown: its worker was lost while it sent it");
                let end = End::Archived("its worker was lost while it sent it".into());
                return self.end(&lease, end).await;
            }
            Begun::Over(state) => {
                let end = match state.as_deref() {
                    Some("sent") => End::Completed,
                    Some(state) => End::Archived(format!("it is {state}")),
                    None => End::Archived("nobody has ordered it".into()),
                };
                return self.end(&lease, end).await;
            }
        };
        let answer = self.send(&mail, &mut lease).await;
        let down = match &answer {
            Answer::Unavailable { reason } => Some(reason.to_string()),
            _ => None,
        };
        let (outcome, end) = self.meaning(answer, &lease);
        if let ("failed" | "unknown", reason) = (outcome.state, &outcome.reason) {
            tracing::warn!(%id, reason, "it is {}", outcome.state);
        }
        if let Err(error) = self.deliveries.finish(id, token, &outcome).await {
            // The queue records that the mail was sent, and reports it to the reconciler. Any other
            // outcome is unknown when the lease expires.
            if end == End::Completed {
                self.queue.end(&lease, end).await?;
            }
            return Err(error);
        }
        let ended = self.end(&lease, end).await?;
        Ok(down.map_or(ended, Step::Down))
    }

    async fn end(&self, lease: &Lease, end: End) -> Result<Step, Box<dyn Error + Send + Sync>> {
        if !self.queue.end(lease, end).await? {
            tracing::warn!(id = %lease.id, "its lease had ended before: the task comes back");
        }
        Ok(Step::Worked)
    }

    /// Sends, and renews the lease until the mail is sent.
    async fn send(&self, mail: &Message, lease: &mut Lease) -> Answer {
        let batch = std::slice::from_ref(mail);
        let sent = tokio::time::timeout(self.time_limit, self.smtp.send(batch));
        let mut sent = std::pin::pin!(sent);
        let answers = loop {
            tokio::select! {
                answers = &mut sent => break answers,
                () = tokio::time::sleep(self.queue.lease() / 3) => self.renew(lease).await,
            }
        };
        let late = || Answer::Unavailable {
            reason: "no answer in time".into(),
        };
        match answers {
            Ok(mut answers) => answers.pop().unwrap_or_else(late),
            Err(_) => self.smtp.recall_answer(mail.id).unwrap_or_else(late),
        }
    }

    /// A worker that lost its task finishes anyway: a begun mail cannot be withdrawn.
    async fn renew(&self, lease: &mut Lease) {
        let id = lease.id;
        match self.queue.renew(lease).await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(%id, "its lease is somebody else's by now"),
            Err(error) => tracing::warn!(%id, error, "its lease could not be renewed"),
        }
    }

    /// Returns the outcome for the row, and the end for the task.
    fn meaning(&self, answer: Answer, lease: &Lease) -> (Outcome, End) {
        let task = &lease.task;
        let (state, reason, end) = match answer {
            Answer::Accepted => ("sent", None, End::Completed),
            Answer::Rejected { reason } => {
                let reason = String::from(reason);
                ("failed", Some(reason.clone()), End::Archived(reason))
            }
            Answer::Retry { reason, after } if task.may_be_retried() => {
                let reason = String::from(reason);
                let later = || self.retries.after(task.retried(), fastrand::f64());
                let end = End::Again(after.unwrap_or_else(later), reason.clone());
                ("queued", Some(reason), end)
            }
            Answer::Retry { reason, .. } => {
                let times = u64::from(task.retried()) + 1;
                let reason = format!("{reason} (tried {times} times)");
                ("failed", Some(reason.clone()), End::Archived(reason))
            }
            Answer::Unavailable { reason } | Answer::Backpressure { reason } => {
                let reason = String::from(reason);
                ("queued", Some(reason.clone()), End::Back(MOMENT, reason))
            }
            Answer::Ambiguous { reason } => {
                let reason = String::from(reason);
                ("unknown", Some(reason.clone()), End::Archived(reason))
            }
        };
        let outcome = Outcome {
            state,
            reason,
            counts: !matches!(end, End::Back(..)),
        };
        (outcome, end)
    }
}

/// Returns the message of a mail.
pub fn mail(id: Uuid, recipient: &str, subject: &str, body: &str) -> Message {
    Message::new(id, "mail:send", body)
        .header("to", recipient)
        .header("subject", subject)
}
