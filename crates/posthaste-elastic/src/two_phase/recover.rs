//! Recovery: whoever finds a transaction that nobody has moved for a while brings it to its end.
//!
//! Which ones those are is told by clocks, and costs no more than attempts: two that set about the same transaction do no harm.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tokio::time::sleep;

use super::coordinator::Coordinator;
use super::failure::Failure;
use super::read::Walk;
use super::state::State;

/// So many are brought to their ends at once.
const AT_ONCE: usize = 8;
/// In which a transaction is open.
pub(super) const OPEN: [State; 4] = [
    State::Created,
    State::Pending,
    State::Committed,
    State::Terminating,
];

/// What one pass over the transactions that are due came to.
#[derive(Debug, Default)]
pub struct Recovered {
    /// So many have happened.
    pub finished: usize,
    /// So many were given up.
    pub rolled_back: usize,
    /// These are still open, and due again later.
    pub open: Vec<(String, Failure)>,
}

impl Coordinator {
    /// Sets about all transactions that have been due for as long as `grace`, those first that have been due for longest.
    ///
    /// Each attempt puts the next one off, so that one which cannot be ended keeps nobody waiting. `grace` should be longer than an undisturbed
    /// transaction takes: a shorter one costs attempts, and nothing else.
    ///
    /// # Errors
    /// Nothing could be found. What could not be ended is no error.
    pub async fn recover(&self, grace: Duration) -> Result<Recovered, Failure> {
        self.recover_while(grace, || true).await
    }

    /// As [`recover`](Self::recover), but begins with no further transaction once `goes_on` says no: those under way are brought to their ends.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub async fn recover_while(
        &self,
        grace: Duration,
        goes_on: impl Fn() -> bool,
    ) -> Result<Recovered, Failure> {
        self.check().await?;
        let mut recovered = Recovered::default();
        // Their ids are enough.
        let mut due = self.open_since("next_attempt_at", grace, false);
        while let Some(page) = self.store.next(&mut due).await? {
            let ids = page.hits.into_iter().map(|hit| hit.id);
            // Asked when a transaction's turn comes, not when the page is read.
            let ids = ids.take_while(|_| goes_on());
            let runs = ids.map(|id| async move { (self.resume(&id).await, id) });
            let mut runs = stream::iter(runs).buffer_unordered(AT_ONCE);
            while let Some((told, id)) = runs.next().await {
                match told {
                    Ok(()) => recovered.finished += 1,
                    Err(Failure::RolledBack(_)) => recovered.rolled_back += 1,
                    Err(failure) => recovered.open.push((id, failure)),
                }
            }
            if !goes_on() {
                break;
            }
        }
        Ok(recovered)
    }

    /// Recovers again and again, with this much time between, until the future is dropped.
    ///
    /// What went wrong is logged, and met again by the next pass.
    pub async fn recover_always(&self, grace: Duration, between: Duration) {
        loop {
            match self.recover(grace).await {
                Ok(recovered) => {
                    for (id, failure) in recovered.open {
                        tracing::warn!(transaction = id, %failure, "a transaction could not be ended");
                    }
                }
                Err(failure) => tracing::warn!(%failure, "recovery found nothing out"),
            }
            // Several processes that began together need not stay together.
            sleep(between.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    /// The open transactions whose time in this field is at least so old, the oldest first, with what is written of them if asked.
    pub(super) fn open_since(&self, field: &str, age: Duration, whole: bool) -> Walk<'_> {
        let before = format!("now-{}s", age.as_secs());
        let query = json!({
            "_source": whole,
            "query": {"bool": {"filter": [
                {"terms": {"transaction_state": OPEN}},
                {"range": {(field): {"lte": before}}},
            ]}},
            // The same time needs an order, too, or a page could lose one.
            "sort": [{(field): "asc"}, {"creation_time": "asc"}, {"_id": "asc"}],
        });
        Walk::new(&self.store.transactions, query)
    }
}
