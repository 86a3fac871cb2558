//! Sends jobs to the destination in batches, and settles each by its answer. One file, because a
//! message that is sent again is settled like the first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use posthaste::RetryLater;
use posthaste::consumer::{Delivery, Outcome, Ticket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::destination::answer::Answer;
use crate::destination::reason::Reason;
use crate::engine::lease::Lease;
use crate::engine::options::{Ack, OnAmbiguous};
use crate::engine::shared::{RESCHEDULE_DELAY, Shared};
use crate::engine::spans;
use crate::message::Message;

/// Sends until the relay stops.
pub(crate) async fn run_sender(shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(shared.options.concurrency));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let batch = tokio::select! {
            batch = shared.next_batch() => batch,
            () = shared.end_token().cancelled() => return,
        };
        tokio::spawn(send_batch(Arc::clone(&shared), batch, slot));
    }
}

/// A job and its message.
struct PendingMessage {
    ticket: Ticket,
    message: Message,
}

/// Counts jobs as in flight until it is dropped.
struct InFlight {
    shared: Arc<Shared>,
    jobs: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.shared.buffer().finish_jobs(self.jobs) {
            self.shared.arrived.notify_one();
        }
        self.shared.room.notify_one();
    }
}

async fn send_batch(shared: Arc<Shared>, batch: Vec<Delivery>, _slot: OwnedSemaphorePermit) {
    let _in_flight = InFlight {
        shared: Arc::clone(&shared),
        jobs: batch.len(),
    };
    let prepared = shared.prepare_messages(batch).await;
    let has_unresolved = !prepared.unresolved.is_empty();
    // Put back first, so that unsent messages of this batch come before it.
    shared.return_to_buffer(prepared.unresolved.into_iter());
    match shared.deliver(prepared.tickets, prepared.messages).await {
        Unsent::Nothing => {}
        Unsent::Unavailable(pending) => shared.isolate_failing_message(pending).await,
        Unsent::Denied(pending) | Unsent::Backpressure(pending) => {
            shared.keep_or_reschedule(pending)
        }
    }
    if has_unresolved {
        tokio::select! {
            () = tokio::time::sleep(RESCHEDULE_DELAY) => {}
            () = shared.end_token().cancelled() => {}
        }
    }
}

/// The unsent messages of a batch, in their order.
enum Unsent {
    Nothing,
    /// One of them may be the cause.
    Unavailable(Vec<PendingMessage>),
    /// The destination denies these messages; it may accept others.
    Denied(Vec<PendingMessage>),
    /// No message can be sent for now: the destination accepts no more, or the lease expired.
    Backpressure(Vec<PendingMessage>),
}

impl Shared {
    /// Returns the next batch; waits until there is one and the destination accepts messages.
    async fn next_batch(&self) -> Vec<Delivery> {
        loop {
            let opened_until = self.buffer().breaker.opened_until();
            if let Some(until) = opened_until {
                tokio::time::sleep_until(until.into()).await;
                self.check_or_try_one().await;
                continue;
            }
            let batch = match self.may_send() {
                true => self.buffer().take_batch(self.options.batch),
                // Buffered jobs keep their place. Notified when the lease is held again, or another
                // relay has it.
                false => Vec::new(),
            };
            if !batch.is_empty() {
                return batch;
            }
            self.arrived.notified().await;
        }
    }

    /// Sends messages and settles their jobs; returns those that were not accepted.
    async fn deliver(&self, tickets: Vec<Ticket>, messages: Vec<Message>) -> Unsent {
        let lease = self.lease();
        let pending = tickets.into_iter().zip(messages);
        let (lost, ours): (Vec<_>, Vec<_>) =
            pending.partition(|(ticket, _)| lease.has_lost(ticket.worker()));
        lost.into_iter().for_each(|(ticket, _)| ticket.give_back());
        let ours = self.begin_tickets(ours);
        if ours.is_empty() {
            return Unsent::Nothing;
        }
        if !lease.may_send(Instant::now()) {
            let pending = |(ticket, message)| PendingMessage { ticket, message };
            return Unsent::Backpressure(ours.into_iter().map(pending).collect());
        }
        let (tickets, messages): (Vec<_>, Vec<_>) = ours.into_iter().unzip();
        let span = spans::send_span(&*self.destination, &tickets);
        let answers = self.send_messages(&messages, lease).await;
        spans::record_answers(&span, &answers);
        drop(span);
        self.receiver_queues()
            .add_accepted(&*self.destination, messages.iter().zip(&answers));
        let mut left = Vec::new();
        let mut accepted = 0;
        let mut failures = Vec::new();
        let mut silence = None;
        let mut backpressure: Option<Reason> = None;
        for ((ticket, message), answer) in tickets.into_iter().zip(messages).zip(answers) {
            let failure = answer.as_ref().and_then(Answer::failure);
            match answer {
                None => ticket.give_back(),
                Some(Answer::Unavailable { reason }) => {
                    silence = Some(reason);
                    failures.extend(failure);
                    left.push(PendingMessage { ticket, message });
                }
                Some(Answer::Backpressure { reason }) => {
                    // A reason that holds up every message takes precedence over a denial of one.
                    if !reason.is_denial() || backpressure.is_none() {
                        backpressure = Some(reason);
                    }
                    failures.extend(failure);
                    left.push(PendingMessage { ticket, message });
                }
                Some(Answer::Accepted) => {
                    accepted += 1;
                    ticket.settle(self.outcome_when_accepted());
                }
                Some(other) => self.settle_ticket(ticket, other),
            }
        }
        let mut status = self.status();
        status.accepted += accepted;
        status.unavailable += left.len() as u64;
        for failure in failures {
            status.count_failure(failure, 1);
        }
        if accepted > 0 {
            status.failing_since = None;
        } else if !left.is_empty() {
            status.record_failing();
        }
        drop(status);
        if let Some(reason) = &silence {
            self.record_outage(reason);
        }
        match (silence, backpressure) {
            (_, Some(reason)) => {
                self.record_backpressure(&reason, accepted > 0);
                // In an ordered relay no message may pass the waiting one.
                match reason.is_denial() && !self.options.ordered {
                    true => Unsent::Denied(left),
                    false => Unsent::Backpressure(left),
                }
            }
            (Some(_), None) => Unsent::Unavailable(left),
            (None, None) => {
                self.record_success();
                Unsent::Nothing
            }
        }
    }

    /// Returns the messages that no other worker can have rescued. An ordered relay has its lease
    /// for that.
    fn begin_tickets(&self, pending: Vec<(Ticket, Message)>) -> Vec<(Ticket, Message)> {
        if self.options.ordered {
            return pending;
        }
        let begun = |(ticket, message): (Ticket, Message)| Some((ticket.begin()?, message));
        pending.into_iter().filter_map(begun).collect()
    }

    /// Returns the destination's answers, within the time limit; `None` for messages that the
    /// aborted relay can give back.
    async fn send_messages(&self, messages: &[Message], lease: Lease) -> Vec<Option<Answer>> {
        let limit = self.options.time_limit;
        let late = tokio::select! {
            // An answer that exists counts, however late it is checked.
            biased;
            answers = self.destination.send(messages) => return pair_answers(answers, messages),
            () = self.aborted.cancelled() => None,
            () = tokio::time::sleep(limit) => {
                let seconds = limit.as_secs_f64();
                Some(Answer::timed_out(format!("no answer within {seconds} s")))
            }
            // Another relay takes over. No message is the cause.
            () = self.lease_is_over(lease) => {
                Some(Answer::backpressure("no answer before the relay's lease expired"))
            }
        };
        let known = messages
            .iter()
            .map(|one| self.destination.recall_answer(one.id));
        known.map(|one| one.or_else(|| late.clone())).collect()
    }

    /// Waits until this lease and its renewals have expired or are lost.
    async fn lease_is_over(&self, mut lease: Lease) {
        loop {
            tokio::time::sleep(lease.time_left(Instant::now())).await;
            let now = self.lease();
            if !now.is_renewal_of(lease, Instant::now()) {
                return;
            }
            lease = now;
        }
    }

    /// Bisects a batch that was not answered although the destination answers checks, until the
    /// message that causes this is found: only that one counts as an attempt. If the destination
    /// does not answer, or accepts no more, everything waits.
    async fn isolate_failing_message(&self, pending: Vec<PendingMessage>) {
        let mut parts = vec![pending];
        let mut denied = Vec::new();
        while let Some(mut part) = parts.pop() {
            if !self.check_destination().await || self.end_token().is_cancelled() {
                parts.push(part);
                break;
            }
            let half = part.split_off(part.len() / 2);
            let is_alone = part.is_empty();
            let sent = match is_alone {
                true => self.send_alone(half).await,
                false => {
                    parts.push(half);
                    self.resend(part).await
                }
            };
            match sent {
                Unsent::Nothing => {}
                Unsent::Unavailable(left) => parts.push(left),
                Unsent::Denied(left) => denied.extend(left),
                Unsent::Backpressure(left) => {
                    parts.push(left);
                    break;
                }
            }
        }
        // The last part holds the first messages.
        let mut left: Vec<PendingMessage> = parts.into_iter().rev().flatten().collect();
        left.extend(denied);
        if !left.is_empty() {
            self.keep_or_reschedule(left);
        }
    }

    /// Sends messages again.
    async fn resend(&self, part: Vec<PendingMessage>) -> Unsent {
        let (tickets, messages) = part
            .into_iter()
            .map(|one| (one.ticket, one.message))
            .unzip();
        self.deliver(tickets, messages).await
    }

    /// Sends one message alone. If it gets no answer from a destination that answers checks, the
    /// message is the cause.
    async fn send_alone(&self, one: Vec<PendingMessage>) -> Unsent {
        let left = match self.resend(one).await {
            Unsent::Unavailable(left) => left,
            other => return other,
        };
        if !self.check_destination().await {
            return Unsent::Backpressure(left);
        }
        for pending in left {
            let reason = self.status().last_error.clone().unwrap_or_default();
            // The failure was counted when the message was not answered.
            self.apply_answer(pending.ticket, Answer::retry(reason));
        }
        Unsent::Nothing
    }

    /// Keeps messages in memory in an ordered relay, else reschedules them.
    fn keep_or_reschedule(&self, pending: Vec<PendingMessage>) {
        let tickets = pending.into_iter().map(|one| one.ticket);
        match self.keeps_unsent() {
            true => self.return_to_buffer(tickets),
            false => self.reschedule(tickets),
        }
    }

    /// Returns jobs to the front of the buffer.
    fn return_to_buffer(&self, tickets: impl Iterator<Item = Ticket>) {
        // The job as it was claimed: the message's job may be the content of an envelope.
        let jobs = tickets.map(|ticket| Delivery {
            job: Arc::clone(ticket.job()),
            ticket,
        });
        self.buffer().put_back(jobs.collect());
        // The relay may have been stopped.
        if self.end_token().is_cancelled() {
            self.give_back_waiting();
        }
    }

    pub(crate) fn keeps_unsent(&self) -> bool {
        self.options.ordered && !self.end_token().is_cancelled()
    }

    /// Reschedules jobs for any relay: after a delay, or at once if this relay stops.
    pub(crate) fn reschedule(&self, tickets: impl Iterator<Item = Ticket>) {
        if self.end_token().is_cancelled() {
            return tickets.for_each(Ticket::give_back);
        }
        let reason = self.status().last_error.clone().unwrap_or_default();
        tickets.for_each(|ticket| {
            ticket.fail(RetryLater::without_attempt(
                RESCHEDULE_DELAY,
                reason.clone(),
            ))
        });
    }

    fn outcome_when_accepted(&self) -> Outcome {
        match self.options.ack {
            Ack::Accepted => Outcome::Done,
            Ack::Confirmed { lease } => Outcome::Await {
                until: deadline_after(lease),
            },
        }
    }

    pub(crate) fn settle_ticket(&self, ticket: Ticket, answer: Answer) {
        self.count_failure(&answer);
        self.apply_answer(ticket, answer);
    }

    fn count_failure(&self, answer: &Answer) {
        if let Some(failure) = answer.failure() {
            self.status().count_failure(failure, 1);
        }
    }

    /// Settles a ticket without counting a failure: it was counted already, or there is none.
    fn apply_answer(&self, ticket: Ticket, answer: Answer) {
        match answer {
            Answer::Accepted => {
                let mut status = self.status();
                status.accepted += 1;
                status.failing_since = None;
                drop(status);
                ticket.settle(self.outcome_when_accepted());
            }
            Answer::Rejected { reason } => {
                self.status().count_rejection(&reason);
                self.record_failure(&reason);
                ticket.settle(Outcome::Discard {
                    reason: reason.into(),
                });
            }
            Answer::Retry { reason, after } => {
                self.status().retried += 1;
                self.record_failure(&reason);
                match after {
                    Some(after) => ticket.fail(RetryLater::after(after, reason)),
                    None => ticket.fail(reason),
                }
            }
            Answer::Ambiguous { reason } => {
                self.record_failure(&reason);
                match self.options.on_ambiguous {
                    OnAmbiguous::Resend => ticket.fail(reason),
                    OnAmbiguous::Discard => ticket.settle(Outcome::Discard {
                        reason: format!("ambiguous: {reason}"),
                    }),
                }
            }
            Answer::Unavailable { .. } | Answer::Backpressure { .. } => ticket.give_back(),
        }
    }

    pub(crate) fn record_failure(&self, reason: &str) {
        let mut status = self.status();
        status.last_error = Some(reason.to_owned());
        status.record_failing();
    }
}

/// Pairs each message with its answer.
fn pair_answers(answers: Vec<Answer>, messages: &[Message]) -> Vec<Option<Answer>> {
    if answers.len() == messages.len() {
        return answers.into_iter().map(Some).collect();
    }
    let wrong = format!("{} answers to {} messages", answers.len(), messages.len());
    vec![Some(Answer::unavailable(wrong)); messages.len()]
}

/// Now plus `wait`, at most the largest timestamp.
fn deadline_after(wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    Timestamp::now()
        .saturating_add(wait)
        .unwrap_or(Timestamp::MAX)
}
