//! Carries jobs to the destination: sends them in batches, and settles each by its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::destination::Answer;
use super::message::Message;
use super::{Mode, Shared, Strength, Unknown};
use crate::consumer::{Delivery, Outcome, Ticket};
use crate::work::handler::TryAgain;

/// Jobs that found the destination down are looked at again after this.
pub(super) const PUT_OFF: Duration = Duration::from_secs(1);

/// Sends until the relay stops.
pub(super) async fn run(shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(shared.options.concurrency));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let batch = tokio::select! {
            batch = shared.next() => batch,
            () = shared.over().cancelled() => return,
        };
        tokio::spawn(carry(Arc::clone(&shared), batch, slot));
    }
}

/// A job with the message that was made of it.
struct Parcel {
    ticket: Ticket,
    message: Message,
}

/// Jobs that are under way; not any more when this is dropped, whatever happened.
struct UnderWay {
    shared: Arc<Shared>,
    jobs: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.line().ended(self.jobs);
        self.shared.room.notify_one();
    }
}

async fn carry(shared: Arc<Shared>, batch: Vec<Delivery>, _slot: OwnedSemaphorePermit) {
    let _under_way = UnderWay {
        shared: Arc::clone(&shared),
        jobs: batch.len(),
    };
    let (tickets, messages) = shared.pack(batch).await;
    match shared.deliver(tickets, messages).await {
        Left::Nothing => {}
        Left::Unanswered(parcels) => shared.single_out(parcels).await,
        Left::NotNow(parcels) => shared.put_back(parcels),
    }
}

/// What is left of messages that were sent, in their order.
enum Left {
    Nothing,
    /// One of them may be the reason.
    Unanswered(Vec<Parcel>),
    /// The destination takes no more for now, whichever it is given.
    NotNow(Vec<Parcel>),
}

impl Shared {
    /// The next batch; waits until there is one and the destination is there.
    async fn next(&self) -> Vec<Delivery> {
        loop {
            let opened_until = self.line().breaker.opened_until();
            if let Some(until) = opened_until {
                tokio::time::sleep_until(until.into()).await;
                self.look().await;
                continue;
            }
            let batch = self.line().take(self.options.batch);
            if !batch.is_empty() {
                return batch;
            }
            self.arrived.notified().await;
        }
    }

    /// Sends and settles; what was not taken comes back.
    async fn deliver(&self, tickets: Vec<Ticket>, messages: Vec<Message>) -> Left {
        if messages.is_empty() {
            return Left::Nothing;
        }
        if !self.lease().may_send(Instant::now()) {
            tickets.into_iter().for_each(Ticket::give_back);
            return Left::Nothing;
        }
        let answers = self.ask(&messages).await;
        let mut left = Vec::new();
        let mut accepted = 0;
        let (mut silence, mut not_now) = (None, None);
        for ((ticket, message), answer) in tickets.into_iter().zip(messages).zip(answers) {
            match answer {
                None => ticket.give_back(),
                Some(Answer::Unanswered { reason }) => {
                    silence = Some(reason);
                    left.push(Parcel { ticket, message });
                }
                Some(Answer::NotNow { reason }) => {
                    not_now = Some(reason);
                    left.push(Parcel { ticket, message });
                }
                Some(Answer::Accepted) => {
                    accepted += 1;
                    ticket.finish(self.accepted());
                }
                Some(other) => self.settle(ticket, other),
            }
        }
        self.status().accepted += accepted;
        self.status().unanswered += left.len() as u64;
        if let Some(reason) = &silence {
            self.trouble(reason);
        }
        match (silence, not_now) {
            (_, Some(reason)) => {
                self.not_now(&reason, accepted > 0);
                Left::NotNow(left)
            }
            (Some(_), None) => Left::Unanswered(left),
            (None, None) => {
                self.line().breaker.succeeded();
                Left::Nothing
            }
        }
    }

    /// What the destination says, in time. Nothing about messages that the relay, which is to end now, can give back.
    async fn ask(&self, messages: &[Message]) -> Vec<Option<Answer>> {
        // Whoever takes the drain over does so when the lease is over.
        let left = self.lease().left(Instant::now());
        let limit = self.options.time_limit.min(left);
        let sent = tokio::time::timeout(limit, self.destination.send(messages));
        let sent = tokio::select! {
            sent = sent => Some(sent),
            () = self.aborted.cancelled() => None,
        };
        let cut_short = |message: &Message| self.destination.recall(message.id);
        match sent {
            None => messages.iter().map(cut_short).collect(),
            Some(Err(_)) => {
                let seconds = limit.as_secs_f64();
                let late = Answer::unanswered(format!("no answer within {seconds} s"));
                let known = messages.iter().map(cut_short);
                known
                    .map(|one| one.or_else(|| Some(late.clone())))
                    .collect()
            }
            Some(Ok(answers)) if answers.len() == messages.len() => {
                answers.into_iter().map(Some).collect()
            }
            Some(Ok(answers)) => {
                let wrong = format!("{} answers to {} messages", answers.len(), messages.len());
                vec![Some(Answer::unanswered(wrong)); messages.len()]
            }
        }
    }

    /// A batch that was not answered although the destination is there is sent in ever smaller parts, until the message that does this is found: it
    /// alone burns an attempt. When the destination is not there, or takes no more, everything waits.
    async fn single_out(&self, parcels: Vec<Parcel>) {
        let mut parts = vec![parcels];
        while let Some(mut part) = parts.pop() {
            if !self.look().await || self.over().is_cancelled() {
                parts.push(part);
                break;
            }
            let half = part.split_off(part.len() / 2);
            let is_alone = part.is_empty();
            let sent = match is_alone {
                true => self.alone(half).await,
                false => {
                    parts.push(half);
                    self.again(part).await
                }
            };
            match sent {
                Left::Nothing => {}
                Left::Unanswered(left) => parts.push(left),
                Left::NotNow(left) => {
                    parts.push(left);
                    break;
                }
            }
        }
        // The last part is the first in line.
        let left: Vec<Parcel> = parts.into_iter().rev().flatten().collect();
        if !left.is_empty() {
            self.put_back(left);
        }
    }

    /// Sends once more.
    async fn again(&self, part: Vec<Parcel>) -> Left {
        let (tickets, messages) = part
            .into_iter()
            .map(|one| (one.ticket, one.message))
            .unzip();
        self.deliver(tickets, messages).await
    }

    /// Sends one message by itself. Without an answer from a destination that is there, it lies with the message.
    async fn alone(&self, one: Vec<Parcel>) -> Left {
        let left = match self.again(one).await {
            Left::Unanswered(left) => left,
            other => return other,
        };
        if !self.look().await {
            return Left::NotNow(left);
        }
        for parcel in left {
            let reason = self.status().last_error.clone().unwrap_or_default();
            self.settle(
                parcel.ticket,
                Answer::Later {
                    reason,
                    after: None,
                },
            );
        }
        Left::Nothing
    }

    /// Where the order counts they are kept in hand, else they are put off.
    fn put_back(&self, parcels: Vec<Parcel>) {
        if self.keeps_in_hand() {
            // The job as it was claimed: its message may be about what was in an envelope.
            let jobs = parcels.into_iter().map(|one| Delivery {
                job: Arc::clone(&one.ticket.job),
                ticket: one.ticket,
            });
            self.line().put_back(jobs.collect());
            // It may have been told to stop meanwhile.
            if self.over().is_cancelled() {
                self.give_back_waiting();
            }
        } else {
            self.put_off(parcels.into_iter().map(|one| one.ticket));
        }
    }

    pub(super) fn keeps_in_hand(&self) -> bool {
        self.options.mode == Mode::Drain && !self.over().is_cancelled()
    }

    /// Any relay may have them, after a while or at once if this one stops.
    pub(super) fn put_off(&self, tickets: impl Iterator<Item = Ticket>) {
        if self.over().is_cancelled() {
            return tickets.for_each(Ticket::give_back);
        }
        let reason = self.status().last_error.clone().unwrap_or_default();
        tickets.for_each(|ticket| ticket.fail(TryAgain::unburnt(PUT_OFF, reason.clone())));
    }

    fn accepted(&self) -> Outcome {
        match self.options.strength {
            Strength::Accepted => Outcome::Done,
            Strength::Done { lease } => Outcome::Await {
                until: later(lease),
            },
        }
    }

    pub(super) fn settle(&self, ticket: Ticket, answer: Answer) {
        match answer {
            Answer::Accepted => {
                self.status().accepted += 1;
                ticket.finish(self.accepted());
            }
            Answer::Refused { reason } => {
                self.status().refused += 1;
                self.complain(&reason);
                ticket.finish(Outcome::Discard { reason });
            }
            Answer::Later { reason, after } => {
                self.status().later += 1;
                self.complain(&reason);
                ticket.fail(match after {
                    Some(after) => TryAgain::after(after, reason),
                    None => TryAgain::by_backoff(reason),
                });
            }
            Answer::Unknown { reason } => {
                self.complain(&reason);
                match self.options.unknown {
                    Unknown::Resend => ticket.fail(TryAgain::by_backoff(reason)),
                    Unknown::Discard => ticket.finish(Outcome::Discard {
                        reason: format!("unknown: {reason}"),
                    }),
                }
            }
            Answer::Unanswered { .. } | Answer::NotNow { .. } => ticket.give_back(),
        }
    }

    pub(super) fn complain(&self, reason: &str) {
        self.status().last_error = Some(reason.to_owned());
    }
}

/// So much later than now; as late as can be told if that is too late.
fn later(wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    Timestamp::now()
        .saturating_add(wait)
        .unwrap_or(Timestamp::MAX)
}
