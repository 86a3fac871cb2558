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
/// More seldom where a look takes long, so that looks take a fiftieth of the time, and while more
/// than this is still to be counted by a worker; but figures are no older than this.
const MANY: u32 = 50_000;
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
    seen: Option<Look>,
    before: VecDeque<Past>,
}

struct Look {
    at: Instant,
    /// Until when nothing is asked.
    until: Instant,
    seen: Seen,
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
        if let Some(look) = &mut last.seen
            && self.will_do(look).await
        {
            return look.seen.clone();
        }
        let begun = Instant::now();
        let seen = store::read_snapshot(&self.pool).await.map(|snapshot| {
            last.before.push_back(Past::new(&snapshot));
            if last.before.len() > REMEMBERED {
                last.before.pop_front();
            }
            Arc::new(Figures::new(snapshot, &last.before, &self.limits))
        });
        let at = Instant::now();
        last.seen = Some(Look {
            at,
            until: at + pause(at - begun),
            seen: seen.clone(),
        });
        seen
    }

    /// Whether what was seen last is shown once more.
    async fn will_do(&self, look: &mut Look) -> bool {
        let now = Instant::now();
        if now < look.until {
            return true;
        }
        if look.seen.is_err() || look.at + OLDEST <= now {
            return false;
        }
        let many = store::is_uncounted(&self.pool, MANY).await;
        look.until = Instant::now() + EVERY;
        many.unwrap_or(false)
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
