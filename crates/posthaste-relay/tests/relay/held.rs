//! A destination that answers one batch only; the receiver gets the others, and no answer arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use posthaste_relay::{Answer, Destination, Message};
use uuid::Uuid;

pub(super) struct Held {
    destination: Arc<dyn Destination>,
    has_answered: AtomicBool,
}

impl Held {
    pub(super) fn new(destination: Arc<dyn Destination>) -> Self {
        let has_answered = AtomicBool::new(false);
        Self {
            destination,
            has_answered,
        }
    }
}

impl Destination for Held {
    fn label(&self) -> String {
        self.destination.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let answers = self.destination.send(batch).await;
            let is_accepted = answers.iter().all(|answer| *answer == Answer::Accepted);
            if is_accepted && self.has_answered.swap(true, Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            answers
        })
    }

    fn recall_answer(&self, id: Uuid) -> Option<Answer> {
        self.destination.recall_answer(id)
    }

    fn can_deduplicate(&self) -> bool {
        self.destination.can_deduplicate()
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.destination.probe()
    }
}
