//! Makes messages of jobs; what is not to be sent, or not yet, is settled here.

use jiff::Timestamp;

use super::destination::Answer;
use super::message::Message;
use super::schedule::stays_until;
use super::{Shared, Unknown};
use crate::consumer::{Delivery, Outcome, Ticket};
use crate::job::Job;

impl Shared {
    /// Makes messages of jobs. A job that cannot be made one will never be.
    pub(super) fn pack(&self, batch: Vec<Delivery>) -> (Vec<Ticket>, Vec<Message>) {
        let mut tickets = Vec::with_capacity(batch.len());
        let mut messages = Vec::with_capacity(batch.len());
        for Delivery { job, ticket } in batch {
            if self.may_have_gone(&job) {
                let reason = "a relay died while it had it".to_owned();
                self.settle(ticket, Answer::Unknown { reason });
                continue;
            }
            match self.options.mapping.message(job, ticket.delivery_id()) {
                Ok(message) => match self.time(message) {
                    Ok(message) => {
                        tickets.push(ticket);
                        messages.push(message);
                    }
                    Err(until) => ticket.finish(Outcome::Snooze { until }),
                },
                Err(reason) => self.settle(ticket, Answer::Refused { reason }),
            }
        }
        (tickets, messages)
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
