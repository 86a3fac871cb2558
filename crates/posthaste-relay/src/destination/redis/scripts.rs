//! Messages that are sent as calls of a script.

use redis::{Cmd, Pipeline};

use super::{Redis, answer_from_refusal};
use crate::destination::answer::Answer;
use crate::message::Message;

/// A script that adds one message; a second call with the same id changes nothing.
pub(crate) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(source: &'static str) -> Self {
        let hash = redis::Script::new(source).get_hash().to_owned();
        Self { source, hash }
    }
}

/// The calls of a batch, which are sent together.
pub(crate) struct Calls<'a> {
    script: &'a Script,
    commands: Pipeline,
    /// The number of commands before the calls.
    before: usize,
    /// The index of the message of each call.
    called: Vec<usize>,
    answers: Vec<Answer>,
}

impl<'a> Calls<'a> {
    /// Creates an empty batch of calls. The commands `before` them only register queues.
    pub(crate) fn new(script: &'a Script, before: Pipeline, batch: &[Message]) -> Self {
        Self {
            script,
            before: before.len(),
            commands: before,
            called: Vec::with_capacity(batch.len()),
            answers: Answer::Accepted.repeat_for(batch),
        }
    }

    /// Adds the call for a message.
    pub(crate) fn call(&mut self, message: usize, keys: &[&str], arguments: &[&[u8]]) {
        let words = 3 + keys.len() + arguments.len();
        let bytes: usize = keys.iter().map(|key| key.len()).sum();
        let bytes = bytes + arguments.iter().map(|one| one.len()).sum::<usize>();
        let mut call = Cmd::with_capacity(words, bytes + 64);
        // The first call contains the script, so the server has it for the others even if it was
        // deleted: no call fails for that, and none overtakes another.
        if self.called.is_empty() {
            call.arg("EVAL").arg(self.script.source);
        } else {
            call.arg("EVALSHA").arg(&self.script.hash);
        }
        call.arg(keys.len());
        keys.iter().for_each(|key| {
            call.arg(*key);
        });
        arguments.iter().for_each(|one| {
            call.arg(*one);
        });
        self.commands.add_command(call);
        self.called.push(message);
    }

    /// Rejects a message without a call: the receiver would never accept it.
    pub(crate) fn refuse(&mut self, message: usize, reason: impl Into<String>) {
        self.answers[message] = Answer::rejected(reason.into());
    }

    /// Sends the calls; returns an answer for each message of the batch.
    pub(crate) async fn send(mut self, redis: &Redis) -> Vec<Answer> {
        if self.called.is_empty() {
            return self.answers;
        }
        let answers = match redis.send_commands(&mut self.commands).await {
            Ok(answers) => answers,
            Err(reason) => return self.all_called(&Answer::unavailable(reason)),
        };
        let (before, calls) = answers.split_at(self.before.min(answers.len()));
        for (message, answer) in self.called.iter().zip(calls) {
            if let Err(error) = answer {
                self.answers[*message] = answer_from_refusal(error);
            }
        }
        // Successful calls count, even if the commands before them failed.
        if let Some(error) = before.iter().find_map(|answer| answer.as_ref().err())
            && calls.iter().any(Result::is_ok)
        {
            redis.log_unrecorded_queue(error);
        }
        self.answers
    }

    fn all_called(mut self, answer: &Answer) -> Vec<Answer> {
        for message in &self.called {
            self.answers[*message] = answer.clone();
        }
        self.answers
    }
}
