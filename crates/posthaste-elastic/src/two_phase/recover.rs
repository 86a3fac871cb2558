//! Recovery: a process that finds a transaction without progress for some time runs it to its end.
//!
//! Clocks only decide which transactions those are. A wrong choice costs attempts, nothing else:
//! two processes that work on the same transaction do no harm.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::coordinator::Coordinator;
use super::failure::Failure;
use super::read::Scan;
use super::state::State;
use crate::{Hit, Page};

/// The number of transactions that are run at once.
const MAX_CONCURRENT: usize = 8;
/// Transactions without a state change for this long are logged.
const STUCK_AFTER: Duration = Duration::from_secs(3_600);
/// Time between two such logs.
const LOG_STUCK_EVERY: Duration = Duration::from_secs(600);
/// The states of open transactions.
pub(super) const OPEN_STATES: [State; 4] = [
    State::Created,
    State::Pending,
    State::Committed,
    State::Terminating,
];

/// The result of one pass over the transactions that are due.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The number that are finished, no matter which process finished them since the pass began.
    pub finished: usize,
    /// The number that were rolled back.
    pub rolled_back: usize,
    /// Those that are still open, and due again later.
    pub open: Vec<(String, Failure)>,
}

impl Coordinator {
    /// Runs all transactions that have been due for as long as `grace`, those due longest first.
    ///
    /// Each attempt that does not end a transaction postpones the next one, even if nothing else
    /// can be written, so that a transaction that cannot end does not delay others: by two seconds,
    /// four, and so on up to an hour. `grace` should be longer than an undisturbed transaction
    /// takes: a shorter one costs attempts, nothing else.
    ///
    /// # Errors
    /// The transactions could not be found. A transaction that could not be ended is not an error.
    pub async fn recover(&self, grace: Duration) -> Result<Recovered, Failure> {
        self.recover_while(grace, || true).await
    }

    /// Like [`recover`](Self::recover), but starts no further transaction once `goes_on` returns
    /// false; those in progress are completed.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub async fn recover_while(
        &self,
        grace: Duration,
        goes_on: impl Fn() -> bool,
    ) -> Result<Recovered, Failure> {
        self.check().await?;
        self.store.refresh_transactions().await?;
        let mut recovered = Recovered::default();
        let mut due = self.scan_open_since("next_attempt_at", grace, json!("transaction_state"));
        let mut pages = 0;
        loop {
            match self.store.next_page(&mut due).await {
                Ok(Some(page)) => self.recover_page(page, &goes_on, &mut recovered).await,
                Ok(None) => break,
                // The point in time of the pass was lost: a node is gone, or the pass took too
                // long. The remaining transactions are still due.
                Err(failure) if pages > 0 && failure.is_missing() => break,
                Err(failure) => return Err(failure),
            }
            pages += 1;
            if !goes_on() {
                break;
            }
        }
        self.store.end_scan(&mut due).await;
        Ok(recovered)
    }

    async fn recover_page(
        &self,
        page: Page,
        goes_on: &impl Fn() -> bool,
        recovered: &mut Recovered,
    ) {
        // Checked when a transaction is started, not when the page is read.
        let hits = page.hits.into_iter().take_while(|_| goes_on());
        let runs = hits.map(|hit| async move { (self.resume_or_postpone(&hit).await, hit.id) });
        let mut runs = stream::iter(runs).buffer_unordered(MAX_CONCURRENT);
        while let Some((result, id)) = runs.next().await {
            match result {
                Ok(()) => recovered.finished += 1,
                Err(Failure::RolledBack(_)) => recovered.rolled_back += 1,
                Err(failure) => recovered.open.push((id, failure)),
            }
        }
    }

    /// Runs a transaction to its end, or postpones the next attempt.
    async fn resume_or_postpone(&self, hit: &Hit) -> Result<(), Failure> {
        let result = self.resume_soon(&hit.id).await;
        let is_open = matches!(&result, Err(failure) if !matches!(failure, Failure::RolledBack(_)));
        if is_open && let Some(state) = state_from_hit(hit) {
            self.store.postpone(&hit.id, state).await;
        }
        result
    }

    /// Recovers repeatedly, with approximately this much time between passes, until the future is
    /// dropped.
    ///
    /// Errors are logged, and the next pass retries. Transactions without a state change for an
    /// hour are logged with their blockers, every ten minutes.
    pub async fn recover_always(&self, grace: Duration, between: Duration) {
        let mut named: Option<Instant> = None;
        loop {
            match self.recover(grace).await {
                Ok(recovered) => {
                    for (transaction, error) in recovered.open {
                        tracing::warn!(transaction, %error, "a transaction could not be completed");
                    }
                }
                Err(error) => tracing::warn!(%error, "recovery could not list transactions"),
            }
            if named.is_none_or(|named| named.elapsed() >= LOG_STUCK_EVERY)
                && self.log_stuck().await
            {
                named = Some(Instant::now());
            }
            // Random, so that processes that started together do not stay in step.
            sleep(between.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    /// Logs transactions that an operator should inspect. Returns whether they could be found.
    async fn log_stuck(&self) -> bool {
        match self.list_stuck(STUCK_AFTER).await {
            Ok(stuck) => {
                for one in stuck {
                    let blockers: Vec<_> = one.blockers.iter().map(ToString::to_string).collect();
                    let (transaction, error) = (one.id, blockers.join(", "));
                    tracing::warn!(
                        transaction,
                        error,
                        "a transaction has been stuck for an hour"
                    );
                }
                true
            }
            Err(error) => {
                tracing::warn!(%error, "transactions stuck for an hour could not be listed");
                false
            }
        }
    }

    /// Returns a scan of the open transactions whose time in this field is at least this old, the
    /// oldest first, with the requested part of their content.
    pub(super) fn scan_open_since(&self, field: &str, age: Duration, source: Value) -> Scan<'_> {
        let before = format!("now-{}s", age.as_secs());
        let query = json!({"bool": {"filter": [
            {"terms": {"transaction_state": OPEN_STATES}},
            {"range": {(field): {"lte": before}}},
        ]}});
        let walk = Scan::new(&self.store.transactions, &query, source);
        walk.sort_by(field, "asc").sort_by("creation_time", "asc")
    }
}

/// Returns the state of a transaction that the search found.
fn state_from_hit(hit: &Hit) -> Option<State> {
    #[derive(Deserialize)]
    struct Seen {
        transaction_state: State,
    }
    let source = hit.source.as_deref()?;
    let seen: Seen = serde_json::from_str(source.get()).ok()?;
    Some(seen.transaction_state)
}
