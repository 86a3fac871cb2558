//! Makes messages of jobs, and settles jobs that must not be sent, or not yet.

use jiff::Timestamp;
use posthaste::consumer::{Delivery, Outcome, Ticket};
use posthaste::{Job, RetryLater};

use crate::destination::answer::Answer;
use crate::engine::options::OnAmbiguous;
use crate::engine::references::ReferenceFailure;
use crate::engine::shared::RESCHEDULE_DELAY;
use crate::engine::shared::Shared;
use crate::message::Message;
use crate::message::outbox;
use crate::message::outbox::OutboxJob;
use crate::message::schedule::message_if_due;

/// The messages of a batch.
#[derive(Default)]
pub(crate) struct PreparedBatch {
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) messages: Vec<Message>,
    /// Tickets that keep their place because a row could not be read for now.
    pub(crate) unresolved: Vec<Ticket>,
}

impl Shared {
    /// Makes messages of jobs. A job that the mapping cannot convert now never can: it is rejected.
    pub(crate) async fn prepare_messages(&self, batch: Vec<Delivery>) -> PreparedBatch {
        let (tickets, jobs) = self.unwrap_envelopes(batch);
        let jobs = match &self.references {
            Some(references) => {
                references
                    .read_payloads(jobs, self.options.time_limit)
                    .await
            }
            None => jobs.into_iter().map(Ok).collect(),
        };
        let (mut prepared, now) = (PreparedBatch::default(), Timestamp::now());
        for (ticket, job) in tickets.into_iter().zip(jobs) {
            match job {
                // No job may overtake the unresolved one before it.
                _ if !prepared.unresolved.is_empty() => prepared.unresolved.push(ticket),
                Ok(job) => match self
                    .options
                    .mapping
                    .to_message(job)
                    .map(|one| message_if_due(one, self.destination.max_lead_time(), now))
                {
                    Ok(Ok(message)) => {
                        prepared.tickets.push(ticket);
                        prepared.messages.push(message);
                    }
                    Ok(Err(until)) => ticket.settle(Outcome::Snooze { until }),
                    Err(reason) => self.settle_ticket(ticket, Answer::rejected(reason)),
                },
                Err(ReferenceFailure::Settled(answer)) => self.settle_ticket(ticket, answer),
                Err(ReferenceFailure::Unavailable(reason)) => {
                    self.record_failure(&reason);
                    match self.keeps_unsent() {
                        true => prepared.unresolved.push(ticket),
                        false => self.reschedule([ticket].into_iter()),
                    }
                }
            }
        }
        prepared
    }

    /// Takes jobs out of their envelopes. A job that expired while it waited here goes back: the
    /// server, whose clock decides, records it as expired. A relay whose clock is ahead loses a
    /// second each time and no job.
    fn unwrap_envelopes(&self, batch: Vec<Delivery>) -> (Vec<Ticket>, Vec<OutboxJob>) {
        let mut opened = (Vec::with_capacity(batch.len()), Vec::new());
        let now = Timestamp::now();
        for Delivery { job, ticket } in batch {
            if job.expires_at <= now {
                let reason = "it expired while a relay held it";
                ticket.fail(RetryLater::without_attempt(RESCHEDULE_DELAY, reason));
                continue;
            }
            if self.may_have_been_sent(&job) {
                let reason = "a relay died while it held the job".into();
                self.settle_ticket(ticket, Answer::Ambiguous { reason });
                continue;
            }
            match outbox::unwrap_envelope(job, ticket.delivery_id()) {
                Ok(job) => {
                    opened.0.push(ticket);
                    opened.1.push(job);
                }
                Err(reason) => self.settle_ticket(ticket, Answer::rejected(reason)),
            }
        }
        opened
    }

    /// Returns whether a relay that died may have sent it, and it must not be sent twice.
    fn may_have_been_sent(&self, job: &Job) -> bool {
        job.crashes > 0
            && self.options.on_ambiguous == OnAmbiguous::Discard
            && !self.destination.can_deduplicate()
    }
}
