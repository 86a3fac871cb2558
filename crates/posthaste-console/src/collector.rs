//! One read of the database for all open pages, and rates from the reads before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use parking_lot::Mutex;
use posthaste_observe::{Source, Thresholds};

use crate::figures::{Figures, PastTotals};
use crate::store::{self, StoreError};

/// The shortest time between two reads.
pub(crate) const MIN_READ_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a read: all pages wait for it, and a half-open connection never answers.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Earlier reads that are retained for rates and lines.
const MAX_PAST_READS: usize = 150;

/// The answer of a read.
pub(crate) type FiguresResult = Result<Arc<Figures>, StoreError>;

/// Reads when a page asks, at most every two seconds, and less often while reads are slow.
pub(crate) struct Collector(posthaste_observe::Collector<Database>);

struct Database {
    pool: Pool,
    thresholds: Thresholds,
    before: Mutex<VecDeque<PastTotals>>,
}

impl Collector {
    pub(crate) fn new(pool: Pool, thresholds: Thresholds) -> Self {
        let database = Database {
            pool,
            thresholds,
            before: Mutex::default(),
        };
        Self(posthaste_observe::Collector::new(
            database,
            MIN_READ_INTERVAL,
            READ_TIMEOUT,
        ))
    }

    /// Returns current or recently read figures.
    pub(crate) async fn figures(&self) -> FiguresResult {
        self.0.get().await
    }

    /// Drops the cached figures, so that the next page reads those after a change.
    pub(crate) async fn invalidate(&self) {
        self.0.invalidate().await;
    }
}

impl Source for Database {
    type Output = Arc<Figures>;
    type Error = StoreError;

    async fn read(&self) -> FiguresResult {
        let shared = store::read_snapshot(&self.pool).await?;
        let mut before = self.before.lock();
        before.push_back(PastTotals::new(&shared.snapshot));
        if before.len() > MAX_PAST_READS {
            before.pop_front();
        }
        let figures = Figures::new(
            shared.snapshot,
            shared.actions,
            shared.role_may_act,
            &before,
            &self.thresholds,
        );
        Ok(Arc::new(figures))
    }

    fn timeout_error(&self, _within: Duration) -> StoreError {
        StoreError::Late("half a minute")
    }
}
