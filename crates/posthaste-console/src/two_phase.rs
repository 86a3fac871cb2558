//! One read of transactions over documents, shared by all viewers: the search server holds them,
//! and Postgres knows nothing of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_elastic::two_phase::{Coordinator, Listed, Stuck};
use tokio::sync::Mutex;

/// The shortest time between two reads: each has the server show what was written.
const EVERY: Duration = Duration::from_secs(5);
/// After one that failed the next waits for longer: the server may have too much to do.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// So long may it take.
pub(crate) const WITHIN: Duration = Duration::from_secs(2);
/// What has not moved for so long needs attention.
pub(crate) const UNMOVED: Duration = Duration::from_secs(3_600);
/// The most of these that are read with their documents.
pub(crate) const STUCK: usize = 20;
/// The most of all open ones that are shown.
pub(crate) const OPEN: usize = 100;

/// What there was.
pub(crate) struct Overview {
    /// Those that have not moved for long, the oldest first.
    pub(crate) stuck: Vec<Stuck>,
    /// Those that are open, those that changed last first; one more than is shown, if there is.
    pub(crate) open: Vec<Listed>,
    pub(crate) took: Duration,
}

/// What was seen last, or why nothing was.
pub(crate) type Seen = Result<Arc<Overview>, Arc<str>>;

/// Reads when a page asks; those that ask soon afterwards get the same answer.
pub(crate) struct TwoPhase {
    coordinator: Arc<Coordinator>,
    last: Mutex<Option<(Instant, Seen)>>,
}

impl TwoPhase {
    pub(crate) fn new(coordinator: Arc<Coordinator>) -> Self {
        Self {
            coordinator,
            last: Mutex::default(),
        }
    }

    /// What is there now, or was a few seconds ago.
    pub(crate) async fn seen(&self) -> Seen {
        let mut last = self.last.lock().await;
        if let Some((at, seen)) = &*last {
            let holds = if seen.is_ok() { EVERY } else { AFTER_FAILURE };
            if at.elapsed() < holds {
                return seen.clone();
            }
        }
        let seen = match tokio::time::timeout(WITHIN, self.read()).await {
            Ok(seen) => seen,
            Err(_) => Err("no answer within two seconds".into()),
        };
        *last = Some((Instant::now(), seen.clone()));
        seen
    }

    async fn read(&self) -> Seen {
        let started = Instant::now();
        let why = |failure: posthaste_elastic::two_phase::Failure| Arc::from(failure.to_string());
        let stuck = self.coordinator.stuck_first(UNMOVED, STUCK).await;
        let stuck = stuck.map_err(why)?;
        let open = self.coordinator.list(&[], OPEN + 1).await.map_err(why)?;
        Ok(Arc::new(Overview {
            stuck,
            open,
            took: started.elapsed(),
        }))
    }
}
