//! Recovery: a process that finds a transaction that nobody has moved for a while brings it to its
//! end.
//!
//! Which ones those are is decided by clocks, and costs no more than attempts: two that set about
//! the same transaction do no harm.

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

/// This many are brought to their ends at once.
const AT_ONCE: usize = 8;
/// Those that have not moved for this long are named,
const UNMOVED: Duration = Duration::from_secs(3_600);
/// once in so long.
const NAME_EVERY: Duration = Duration::from_secs(600);
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
    /// This many have happened, no matter who brought them to their ends since the pass began.
    pub finished: usize,
    /// This many were given up.
    pub rolled_back: usize,
    /// These are still open, and due again later.
    pub open: Vec<(String, Failure)>,
}

impl Coordinator {
    /// Sets about all transactions that have been due for as long as `grace`, those first that have
    /// been due for longest.
    ///
    /// Each attempt that ends nothing puts the next one off, also where nothing but that can be
    /// written, so that one which cannot be ended keeps nobody waiting: for two seconds, four, and
    /// so on up to an hour. `grace` should be longer than an undisturbed transaction takes: a
    /// shorter one costs attempts, and nothing else.
    ///
    /// # Errors
    /// Nothing could be found. What could not be ended is not an error.
    pub async fn recover(&self, grace: Duration) -> Result<Recovered, Failure> {
        self.recover_while(grace, || true).await
    }

    /// As [`recover`](Self::recover), but begins with no further transaction once `goes_on` says
    /// no: those in progress are finished.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub async fn recover_while(
        &self,
        grace: Duration,
        goes_on: impl Fn() -> bool,
    ) -> Result<Recovered, Failure> {
        self.check().await?;
        self.store.searchable().await?;
        let mut recovered = Recovered::default();
        let mut due = self.open_since("next_attempt_at", grace, json!("transaction_state"));
        let mut pages = 0;
        loop {
            match self.store.next(&mut due).await {
                Ok(Some(page)) => self.recover_page(page, &goes_on, &mut recovered).await,
                Ok(None) => break,
                // The point in time of the pass was lost: a node is gone, or it took very long.
                // What is left is still due.
                Err(failure) if pages > 0 && failure.is_missing() => break,
                Err(failure) => return Err(failure),
            }
            pages += 1;
            if !goes_on() {
                break;
            }
        }
        self.store.leave(&mut due).await;
        Ok(recovered)
    }

    async fn recover_page(
        &self,
        page: Page,
        goes_on: &impl Fn() -> bool,
        recovered: &mut Recovered,
    ) {
        // Asked when a transaction's turn comes, not when the page is read.
        let hits = page.hits.into_iter().take_while(|_| goes_on());
        let runs = hits.map(|hit| async move { (self.attempt(&hit).await, hit.id) });
        let mut runs = stream::iter(runs).buffer_unordered(AT_ONCE);
        while let Some((result, id)) = runs.next().await {
            match result {
                Ok(()) => recovered.finished += 1,
                Err(Failure::RolledBack(_)) => recovered.rolled_back += 1,
                Err(failure) => recovered.open.push((id, failure)),
            }
        }
    }

    /// Brings a transaction to its end, or puts the next attempt off.
    async fn attempt(&self, hit: &Hit) -> Result<(), Failure> {
        let result = self.resume_soon(&hit.id).await;
        let is_open = matches!(&result, Err(failure) if !matches!(failure, Failure::RolledBack(_)));
        if is_open && let Some(state) = state_of(hit) {
            self.store.postpone(&hit.id, state).await;
        }
        result
    }

    /// Recovers again and again, with this much time between, until the future is dropped.
    ///
    /// What went wrong is logged, and met again by the next pass. What has not moved for an hour is
    /// logged with what blocks it, every ten minutes.
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
            if named.is_none_or(|named| named.elapsed() >= NAME_EVERY) && self.name_unmoved().await
            {
                named = Some(Instant::now());
            }
            // Several processes that began together need not stay together.
            sleep(between.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    /// Logs what a person should inspect; whether that could be found out.
    async fn name_unmoved(&self) -> bool {
        match self.stuck(UNMOVED).await {
            Ok(stuck) => {
                for one in stuck {
                    let blockers: Vec<_> = one.blockers.iter().map(ToString::to_string).collect();
                    let (transaction, error) = (one.id, blockers.join(", "));
                    tracing::warn!(
                        transaction,
                        error,
                        "a transaction has not moved for an hour"
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

    /// The open transactions whose time in this field is at least so old, the oldest first, with
    /// what is asked for of what they hold.
    pub(super) fn open_since(&self, field: &str, age: Duration, source: Value) -> Scan<'_> {
        let before = format!("now-{}s", age.as_secs());
        let query = json!({"bool": {"filter": [
            {"terms": {"transaction_state": OPEN}},
            {"range": {(field): {"lte": before}}},
        ]}});
        let walk = Scan::over(&self.store.transactions, &query, source);
        walk.by(field, "asc").by("creation_time", "asc")
    }
}

/// Where a transaction was when the search saw it.
fn state_of(hit: &Hit) -> Option<State> {
    #[derive(Deserialize)]
    struct Seen {
        transaction_state: State,
    }
    let source = hit.source.as_deref()?;
    let seen: Seen = serde_json::from_str(source.get()).ok()?;
    Some(seen.transaction_state)
}
