//! What a destination knows of messages whose send has not ended: when the send is cut short, that
//! still counts.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use crate::destination::answer::Answer;
use crate::message::Message;

#[derive(Default)]
pub(crate) struct PartialAnswers(Mutex<HashMap<Uuid, Answer>>);

impl PartialAnswers {
    /// Keeps what is true of this message from now on. What was not answered is not worth keeping.
    pub(crate) fn learn(&self, id: Uuid, answer: &Answer) {
        match answer {
            Answer::Unavailable { .. } => self.answers().remove(&id),
            answer => self.answers().insert(id, answer.clone()),
        };
    }

    /// Tells it, once.
    pub(crate) fn recall(&self, id: Uuid) -> Option<Answer> {
        self.answers().remove(&id)
    }

    /// The send has ended and its answers were returned.
    pub(crate) fn forget(&self, batch: &[Message]) {
        let mut answers = self.answers();
        for message in batch {
            answers.remove(&message.id);
        }
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<Uuid, Answer>> {
        self.0.lock()
    }
}
