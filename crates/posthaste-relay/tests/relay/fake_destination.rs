//! A destination whose behaviour the test sets.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::{Backoff, Error};
use posthaste_relay::{
    Answer, Destination, Failure, Message, Reason, Relay, RelayBuilder, UnsafeSetting,
};

/// The behaviour of the destination for messages of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Does {
    Reject,
    /// Refuses this message for now.
    Retry,
    /// Refuses every message for now.
    Backpressure,
    /// Denies the message to the relay's account.
    Deny,
    /// Fails the whole batch: no message has an answer.
    Break,
    Lose,
    Hang,
}

/// A destination that records what it accepts and fails as configured.
#[derive(Clone, Default)]
pub(super) struct FakeDestination(Arc<Mutex<Inner>>);

#[derive(Default)]
pub(super) struct Inner {
    pub(super) is_down: bool,
    pub(super) unsafe_settings: Vec<UnsafeSetting>,
    pub(super) does: HashMap<&'static str, Does>,
    /// Names of the messages of each batch that arrived.
    pub(super) batches: Vec<Vec<String>>,
    pub(super) taken: Vec<String>,
    pub(super) ids: Vec<uuid::Uuid>,
    pub(super) payloads: Vec<String>,
    pub(super) probes: usize,
}

impl FakeDestination {
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    pub(super) fn does(self, kind: &'static str, what: Does) -> Self {
        self.with(|inner| inner.does.insert(kind, what));
        self
    }

    pub(super) fn is_down(&self, is_down: bool) {
        self.with(|inner| inner.is_down = is_down);
    }

    pub(super) fn taken(&self) -> Vec<String> {
        self.with(|inner| inner.taken.clone())
    }

    pub(super) fn relay(&self) -> RelayBuilder {
        let quick = Duration::from_millis(20);
        Relay::to(self.clone()).backoff(Backoff {
            base: quick,
            cap: quick,
        })
    }

    fn answers(&self, batch: &[Message]) -> Option<Vec<Answer>> {
        self.with(|inner| {
            let names = batch.iter().map(|message| message.kind.clone());
            inner.batches.push(names.collect());
            let does = |message: &Message| inner.does.get(message.kind.as_str()).copied();
            let reason = || Reason::from("as configured");
            if inner.is_down || batch.iter().any(|one| does(one) == Some(Does::Break)) {
                return Some(vec![Answer::Unavailable { reason: reason() }; batch.len()]);
            }
            if batch.iter().any(|one| does(one) == Some(Does::Hang)) {
                return None;
            }
            let mut taken = Vec::new();
            let answers = batch.iter().map(|message| match does(message) {
                Some(Does::Reject) => Answer::Rejected { reason: reason() },
                Some(Does::Retry) => Answer::Retry {
                    reason: reason(),
                    after: None,
                },
                Some(Does::Backpressure) => Answer::Backpressure { reason: reason() },
                Some(Does::Deny) => Answer::Backpressure {
                    reason: Reason::new(Failure::Auth, "may not"),
                },
                Some(Does::Lose) => Answer::Ambiguous { reason: reason() },
                _ => {
                    taken.push(message.clone());
                    Answer::Accepted
                }
            });
            let answers = answers.collect();
            for message in taken {
                inner.payloads.push(message.payload().to_owned());
                inner.taken.push(message.kind);
                inner.ids.push(message.id);
            }
            Some(answers)
        })
    }
}

impl Destination for FakeDestination {
    fn label(&self) -> String {
        "a destination of the tests".into()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            match self.answers(batch) {
                Some(answers) => answers,
                None => pending().await,
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.with(|inner| {
                inner.probes += 1;
                match inner.is_down {
                    true => Err("down".to_owned()),
                    false => Ok(()),
                }
            })
        })
    }

    fn unsafe_settings(
        &self,
        _longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async { Ok(self.with(|inner| inner.unsafe_settings.clone())) })
    }
}
