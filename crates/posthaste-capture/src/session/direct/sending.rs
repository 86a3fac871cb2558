//! Sends the events in flight.

use std::time::{Duration, Instant};

use posthaste_relay::{Answer, Message};
use tokio::task::yield_now;

use super::DirectRun;
use crate::capture::State;
use crate::error::Error;

/// The answers to messages.
pub(super) struct SendOutcome {
    numbers: Vec<usize>,
    messages: Vec<Message>,
    answers: Vec<Answer>,
    took: Duration,
    /// The destination answered the check.
    was_there: bool,
}

impl DirectRun<'_, '_> {
    /// Begins to send the next messages.
    pub(super) async fn begin_send(&mut self) {
        let is_due = self.sending.is_empty() && Instant::now() >= self.send_at;
        let Some(in_flight) = self.in_flight.as_mut().filter(|_| is_due) else {
            return;
        };
        let (numbers, messages) = in_flight.take_messages(self.pace.size());
        let (sender, asks_first) = (self.direct.sender.clone(), self.asks_first);
        self.sending.spawn(async move {
            let began = Instant::now();
            let asked = match asks_first {
                true => sender.check().await,
                false => Ok(()),
            };
            let was_there = asked.is_ok() && sender.can_ask();
            let answers = match asked {
                Ok(()) => sender.send(&messages).await,
                Err(reason) => {
                    let reason = reason.into();
                    vec![Answer::Unavailable { reason }; messages.len()]
                }
            };
            SendOutcome {
                numbers,
                messages,
                answers,
                took: began.elapsed(),
                was_there: was_there && asks_first,
            }
        });
        // Lets the sending begin before more is read.
        yield_now().await;
    }

    pub(super) fn apply_answers(&mut self, sent: SendOutcome) {
        let Some(in_flight) = &mut self.in_flight else {
            return;
        };
        let numbered = sent.numbers.into_iter().zip(sent.messages).collect();
        let (accepted, problem) = in_flight.apply_answers(numbered, sent.answers);
        self.session.shared.count_events(accepted as u64);
        if accepted > 0 {
            self.policy.record_acceptance();
        }
        let Some(problem) = problem else {
            self.policy.record_acceptance();
            if std::mem::take(&mut self.asks_first) {
                self.session.shared.set_state(State::Direct);
            }
            return self.pace.record_success(sent.took);
        };
        let now = Instant::now();
        if !self.policy.is_silent() {
            let (capture, error) = (&self.session.capture.name, &problem);
            tracing::warn!(
                capture,
                error,
                "the destination of a capture did not accept all events; they are sent again"
            );
        }
        let state = match accepted {
            0 => State::Waiting,
            _ => State::Direct,
        };
        self.session.shared.set_state(state);
        self.session.shared.record_error(&Error::lost(problem));
        if accepted == 0 {
            self.policy.record_refusal(self.began.elapsed());
        }
        self.send_at = now + self.pace.record_failure(sent.was_there);
        self.asks_first = true;
    }
}
