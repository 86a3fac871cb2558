//! The receiver's queues to which messages were sent.

use std::collections::BTreeSet;

use crate::destination::answer::Answer;
use crate::destination::contract::Destination;
use crate::message::Message;

/// The most queues that are remembered: jobs may create any number.
const MAX_QUEUES: usize = 100;

/// The receiver's queues to which messages were sent.
#[derive(Debug, Default)]
pub(crate) struct ReceiverQueues(BTreeSet<String>);

impl ReceiverQueues {
    /// Adds the queues of the messages that the destination accepted.
    pub(crate) fn add_accepted<'a>(
        &mut self,
        destination: &dyn Destination,
        sent: impl Iterator<Item = (&'a Message, &'a Option<Answer>)>,
    ) {
        for (message, answer) in sent {
            let is_taken = matches!(answer, Some(Answer::Accepted));
            if let Some(queue) = destination.receiver_queue(message).filter(|_| is_taken)
                && !self.0.contains(queue)
                && self.0.len() < MAX_QUEUES
            {
                self.0.insert(queue.to_owned());
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
