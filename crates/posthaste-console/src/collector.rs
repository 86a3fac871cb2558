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
/// Where jobs are still to be counted a look takes longer: a fiftieth of the time in all, though
/// figures are no older than this.
const OLDEST: Duration = Duration::from_secs(30);
/// Looks that are remembered for rates and lines.
const REMEMBERED: usize = 150;

/// What was seen last.
pub(crate) type Seen = Result<Arc<Figures>, StoreError>;

/// Looks when somebody asks, at most every two seconds, more seldom while that takes long; whoever
/// asks in between has what was seen last, and whoever asks meanwhile waits for the same look.
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

/// For how long it is shown.
fn holds(seen: &Seen) -> Duration {
    match seen {
        Ok(figures) => pause(figures.snapshot.took),
        Err(_) => EVERY,
    }
}

fn pause(took: Duration) -> Duration {
    (took * 50).clamp(EVERY, OLDEST)
}

impl Collector {
    pub(crate) fn new(pool: Pool, limits: Limits) -> Self {
        Self {
            pool,
            limits,
            last: Mutex::default(),
        }
    }

    /// What is there now, or was a little ago.
    pub(crate) async fn seen(&self) -> Seen {
        let mut last = self.last.lock().await;
        if let Some((at, seen)) = &last.seen
            && at.elapsed() < holds(seen)
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

    /// What is there after something was changed.
    pub(crate) async fn refresh(&self) {
        self.last.lock().await.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_a_fiftieth_of_the_time_and_figures_are_never_older_than_half_a_minute() {
        let of = |took| pause(Duration::from_millis(took)).as_millis();
        assert_eq!([of(0), of(40), of(330)], [2_000, 2_000, 16_500]);
        assert_eq!([of(600), of(10_000)], [30_000, 30_000]);
    }
}
