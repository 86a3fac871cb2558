//! Answers to messages of a send in progress: they count if the send is cut short.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use crate::destination::answer::Answer;
use crate::message::Message;

#[derive(Default)]
pub(crate) struct PartialAnswers(Mutex<HashMap<Uuid, Answer>>);

impl PartialAnswers {
    /// Records the answer to a message. A message without an answer is forgotten.
    pub(crate) fn record_answer(&self, id: Uuid, answer: &Answer) {
        match answer {
            Answer::Unavailable { .. } => self.answers().remove(&id),
            answer => self.answers().insert(id, answer.clone()),
        };
    }

    /// Returns the recorded answer, once.
    pub(crate) fn take_answer(&self, id: Uuid) -> Option<Answer> {
        self.answers().remove(&id)
    }

    /// Removes the answers of a send that returned them.
    pub(crate) fn remove_answers(&self, batch: &[Message]) {
        let mut answers = self.answers();
        for message in batch {
            answers.remove(&message.id);
        }
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<Uuid, Answer>> {
        self.0.lock()
    }
}
