//! Makes messages of jobs; what is not to be sent, or not yet, is settled here.

use jiff::Timestamp;

use super::carry::PUT_OFF;
use super::destination::Answer;
use super::message::Message;
use super::outbox::{self, Parcel};
use super::reference::Unread;
use super::schedule::stays_until;
use super::{Shared, Unknown};
use crate::consumer::{Delivery, Outcome, Ticket};
use crate::job::Job;
use crate::work::handler::TryAgain;

impl Shared {
    /// Makes messages of jobs. A job that cannot be made one will never be.
    pub(super) async fn pack(&self, batch: Vec<Delivery>) -> (Vec<Ticket>, Vec<Message>) {
        let (tickets, parcels) = self.open(batch);
        let parcels = match &self.references {
            Some(references) => references.follow(parcels, self.options.time_limit).await,
            None => parcels.into_iter().map(Ok).collect(),
        };
        let mut packed = (Vec::new(), Vec::new());
        for (ticket, parcel) in tickets.into_iter().zip(parcels) {
            match parcel {
                Ok(parcel) => match self.options.mapping.of(parcel).map(|one| self.time(one)) {
                    Ok(Ok(message)) => {
                        packed.0.push(ticket);
                        packed.1.push(message);
                    }
                    Ok(Err(until)) => ticket.finish(Outcome::Snooze { until }),
                    Err(reason) => self.settle(ticket, Answer::Refused { reason }),
                },
                Err(Unread::Settled(answer)) => self.settle(ticket, answer),
                Err(Unread::NotNow(reason)) => {
                    self.complain(&reason);
                    self.put_off([ticket].into_iter());
                }
            }
        }
        packed
    }

    /// Takes jobs out of their envelopes. One that has expired while it waited here goes back, and the server, whose clock decides, keeps it as expired: a relay whose own clock is ahead
    /// loses a second each time and no job.
    fn open(&self, batch: Vec<Delivery>) -> (Vec<Ticket>, Vec<Parcel>) {
        let mut opened = (Vec::with_capacity(batch.len()), Vec::new());
        let now = Timestamp::now();
        for Delivery { job, ticket } in batch {
            if job.expires_at <= now {
                let reason = "it expired while its relay had it";
                ticket.fail(TryAgain::unburnt(PUT_OFF, reason));
                continue;
            }
            if self.may_have_gone(&job) {
                let reason = "a relay died while it had it".to_owned();
                self.settle(ticket, Answer::Unknown { reason });
                continue;
            }
            match outbox::unwrap(job, ticket.delivery_id()) {
                Ok(parcel) => {
                    opened.0.push(ticket);
                    opened.1.push(parcel);
                }
                Err(reason) => self.settle(ticket, Answer::Refused { reason }),
            }
        }
        opened
    }

    /// The message as it goes now, without a time that is over; or until when it stays.
    fn time(&self, mut message: Message) -> Result<Message, Timestamp> {
        if let Some(at) = message.at {
            let now = Timestamp::now();
            let ahead = self.destination.ahead();
            if let Some(until) = stays_until(at, ahead, &message.job, now) {
                return Err(until);
            }
            message.at = Some(at).filter(|at| *at > now && !ahead.is_zero());
        }
        Ok(message)
    }

    /// Whether somebody may have sent it of whom nobody can ask, and it must not be sent twice.
    fn may_have_gone(&self, job: &Job) -> bool {
        job.crashes > 0
            && self.options.unknown == Unknown::Discard
            && !self.destination.tells_duplicates()
    }
}
