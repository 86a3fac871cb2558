//! One read of transactions over documents, shared by all viewers. The search server stores them;
//! PostgreSQL knows nothing about them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_elastic::two_phase::{Coordinator, Listed, Stuck};
use tokio::sync::Mutex;

/// Shortest time between two reads: each makes the server refresh what was written.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(5);
/// Time until the next read after one that failed: the server may be overloaded.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// Timeout of a read.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without progress after which a transaction is stuck.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(3_600);
/// Stuck transactions that are read with their documents, at most.
pub(crate) const MAX_STUCK: usize = 20;
/// Open transactions that are shown, at most.
pub(crate) const MAX_OPEN: usize = 100;

/// The result of a read.
pub(crate) struct Overview {
    /// Stuck transactions, the oldest first.
    pub(crate) stuck: Vec<Stuck>,
    /// Open transactions, the most recently changed first; one more than is shown, if it exists.
    pub(crate) open: Vec<Listed>,
    pub(crate) took: Duration,
}

/// The last result, or the reason why there is none.
pub(crate) type OverviewResult = Result<Arc<Overview>, Arc<str>>;

/// Reads when a page asks; pages that ask soon afterwards get the cached result.
pub(crate) struct TwoPhase {
    coordinator: Arc<Coordinator>,
    last: Mutex<Option<(Instant, OverviewResult)>>,
}

impl TwoPhase {
    pub(crate) fn new(coordinator: Arc<Coordinator>) -> Self {
        Self {
            coordinator,
            last: Mutex::default(),
        }
    }

    /// Returns the current result, or a cached one.
    pub(crate) async fn cached_overview(&self) -> OverviewResult {
        let mut last = self.last.lock().await;
        if let Some((at, seen)) = &*last {
            let holds = if seen.is_ok() {
                MIN_READ_INTERVAL
            } else {
                RETRY_DELAY
            };
            if at.elapsed() < holds {
                return seen.clone();
            }
        }
        let seen = match tokio::time::timeout(READ_TIMEOUT, self.read()).await {
            Ok(seen) => seen,
            Err(_) => Err("no answer within two seconds".into()),
        };
        *last = Some((Instant::now(), seen.clone()));
        seen
    }

    async fn read(&self) -> OverviewResult {
        let started = Instant::now();
        let why = |failure: posthaste_elastic::two_phase::Failure| Arc::from(failure.to_string());
        let stuck = self
            .coordinator
            .list_first_stuck(STUCK_AFTER, MAX_STUCK)
            .await;
        let stuck = stuck.map_err(why)?;
        let open = self
            .coordinator
            .list(&[], MAX_OPEN + 1)
            .await
            .map_err(why)?;
        Ok(Arc::new(Overview {
            stuck,
            open,
            took: started.elapsed(),
        }))
    }
}
