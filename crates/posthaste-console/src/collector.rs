//! One look at the database for all who watch, however many there are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use tokio::sync::Mutex;

use crate::figures::{Figures, Past};
use crate::store::{self, StoreError};
use crate::verdict::Limits;

/// A look is taken no more often than this.
pub(crate) const EVERY: Duration = Duration::from_secs(2);
/// Looks that are remembered for rates and lines.
const REMEMBERED: usize = 150;

/// What was seen last.
pub(crate) type Seen = Result<Arc<Figures>, StoreError>;

/// Looks when somebody asks, at most every two seconds; whoever asks in between has what was seen
/// last, and whoever asks meanwhile waits for the same look.
pub(crate) struct Collector {
    pool: Pool,
    limits: Limits,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    seen: Option<(Instant, Seen)>,
    before: VecDeque<Past>,
}

impl Collector {
    pub(crate) fn new(pool: Pool, limits: Limits) -> Self {
        Self {
            pool,
            limits,
            last: Mutex::default(),
        }
    }

    /// What is there now, or was two seconds ago.
    pub(crate) async fn seen(&self) -> Seen {
        self.newer_than(EVERY).await
    }

    /// What is there after something was changed.
    pub(crate) async fn refresh(&self) {
        self.last.lock().await.seen = None;
    }

    async fn newer_than(&self, age: Duration) -> Seen {
        let mut last = self.last.lock().await;
        if let Some((at, seen)) = &last.seen
            && at.elapsed() < age
        {
            return seen.clone();
        }
        let seen = store::read_snapshot(&self.pool).await.map(|snapshot| {
            last.before.push_back(Past::new(&snapshot));
            if last.before.len() > REMEMBERED {
                last.before.pop_front();
            }
            Arc::new(Figures::new(snapshot, &last.before, &self.limits))
        });
        last.seen = Some((Instant::now(), seen.clone()));
        seen
    }
}
