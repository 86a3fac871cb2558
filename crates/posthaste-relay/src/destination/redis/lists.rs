//! Messages that are pushed to lists.

use std::collections::BTreeMap;

use redis::Pipeline;

use super::{Redis, answer_from_refusal};
use crate::destination::answer::Answer;
use crate::message::Message;

/// The receiver's queue, and a number if it has several lists: for its priorities, or for scheduled
/// jobs.
pub(crate) type List<'a> = (&'a str, u8);

impl Redis {
    /// Pushes a batch at once. `encode` makes a list's element of a message or returns why it is
    /// rejected permanently. `write` adds the commands for all elements of a list, the same number
    /// for each list. The last of them pushes the elements: if it succeeds, they are not sent
    /// again, even if the others failed, because that would repeat them each time.
    pub(crate) async fn push<'a, E>(
        &self,
        batch: &'a [Message],
        encode: impl Fn(&'a Message) -> Result<(List<'a>, E), String>,
        write: impl Fn(&mut Pipeline, List<'a>, &[E]),
    ) -> Vec<Answer> {
        let mut lists: BTreeMap<List<'a>, (Vec<usize>, Vec<E>)> = BTreeMap::new();
        let mut all = Answer::Accepted.repeat_for(batch);
        for (index, message) in batch.iter().enumerate() {
            let (list, element) = match encode(message) {
                Ok(encoded) => encoded,
                Err(reason) => {
                    all[index] = Answer::rejected(reason);
                    continue;
                }
            };
            let of_list = lists.entry(list).or_default();
            of_list.0.push(index);
            of_list.1.push(element);
        }
        let mut commands = Pipeline::new();
        for (list, (_, elements)) in &lists {
            write(&mut commands, *list, elements);
        }
        let each = commands.len() / lists.len().max(1);
        if lists.is_empty() {
            return all;
        }
        let answers = match self.send_commands(&mut commands).await {
            Ok(answers) => answers,
            Err(reason) => {
                let unavailable = Answer::unavailable(reason);
                let sent = lists.values().flat_map(|(indices, _)| indices);
                sent.for_each(|index| all[*index] = unavailable.clone());
                return all;
            }
        };
        for ((indices, _), answers) in lists.values().zip(answers.chunks(each.max(1))) {
            if let Some(Err(error)) = answers.last() {
                let refused = answer_from_refusal(error);
                indices
                    .iter()
                    .for_each(|index| all[*index] = refused.clone());
            } else if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
                self.log_unrecorded_queue(error);
            }
        }
        all
    }
}
