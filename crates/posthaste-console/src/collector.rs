//! One look at the database for all who watch, however many there are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::figures::{Figures, Past};
use crate::store::{self, StoreError};
use crate::verdict::Limits;

/// A look is taken no more often than this.
pub(crate) const EVERY: Duration = Duration::from_secs(2);
/// Less often where a look takes long: it takes a fiftieth of the time, unless figures would be
/// older than this.
const OLDEST: Duration = Duration::from_secs(30);
/// While a worker has this many jobs to count, a look waits for it, until figures are that old.
const MANY: u32 = 50_000;
/// Looks that are remembered for rates and lines.
const REMEMBERED: usize = 150;

/// What was seen last.
pub(crate) type Seen = Result<Arc<Figures>, StoreError>;

/// Looks when somebody asks, at most every two seconds, less often while that takes long. Who asks
/// in between has what was seen last; who asks meanwhile waits for the same look.
pub(crate) struct Collector(Arc<Watched>);

struct Watched {
    pool: Pool,
    limits: Limits,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    look: Option<Look>,
    /// Figures were as old as they may be, and a worker still had many to count: no more waiting.
    is_in_vain: bool,
    before: VecDeque<Past>,
}

struct Look {
    at: Instant,
    /// Until when nothing is asked.
    until: Instant,
    seen: Seen,
}

impl Look {
    fn is_fresh(&self) -> bool {
        Instant::now() < self.until
    }
}

/// For how long what took so long is not done again.
fn pause(took: Duration) -> Duration {
    (took * 50).clamp(EVERY, OLDEST)
}

/// For how long a look that failed is not taken again: soon it may not.
fn pause_of_failed(took: Duration) -> Duration {
    took.clamp(EVERY, OLDEST)
}

impl Collector {
    pub(crate) fn new(pool: Pool, limits: Limits) -> Self {
        Self(Arc::new(Watched {
            pool,
            limits,
            last: Mutex::default(),
        }))
    }

    /// What is there now, or was a little ago.
    pub(crate) async fn seen(&self) -> Seen {
        if let Some(look) = &self.0.last.lock().await.look
            && look.is_fresh()
        {
            return look.seen.clone();
        }
        // A look goes on when the one who asked has gone: it is for all.
        let watched = Arc::clone(&self.0);
        let looks = tokio::spawn(async move { watched.look().await });
        let ended = |error| Err(StoreError::Failed(format!("the look ended: {error}")));
        looks.await.unwrap_or_else(ended)
    }

    /// What is there after something was changed.
    pub(crate) async fn refresh(&self) {
        self.0.last.lock().await.look = None;
    }
}

impl Watched {
    async fn look(&self) -> Seen {
        let mut last = self.last.lock().await;
        if let Some(seen) = self.still_holds(&mut last).await {
            return seen;
        }
        let begun = Instant::now();
        // All pages wait for it, and a connection that is half open never answers.
        let read = timeout(OLDEST, store::read_snapshot(&self.pool)).await;
        let late = |_| Err(StoreError::Late("half a minute"));
        let seen = read.unwrap_or_else(late).map(|snapshot| {
            last.before.push_back(Past::new(&snapshot));
            if last.before.len() > REMEMBERED {
                last.before.pop_front();
            }
            Arc::new(Figures::new(snapshot, &last.before, &self.limits))
        });
        let (at, took) = (Instant::now(), begun.elapsed());
        let pause = match &seen {
            Ok(_) => pause(took),
            Err(_) => pause_of_failed(took),
        };
        last.look = Some(Look {
            at,
            until: at + pause,
            seen: seen.clone(),
        });
        seen
    }

    /// What was seen last, where that is shown once more.
    async fn still_holds(&self, last: &mut Last) -> Option<Seen> {
        let look = last.look.as_mut()?;
        if look.is_fresh() {
            return Some(look.seen.clone());
        }
        look.seen.as_ref().ok()?;
        let asked = Instant::now();
        let uncounted = timeout(EVERY, store::is_uncounted(&self.pool, MANY)).await;
        let many = matches!(uncounted, Ok(Ok(true)));
        let waits = many && !last.is_in_vain && look.at + OLDEST > asked;
        last.is_in_vain = many && !waits;
        look.until = Instant::now() + pause(asked.elapsed());
        waits.then(|| look.seen.clone())
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

    #[test]
    fn a_look_that_failed_is_taken_again_after_the_time_that_it_took() {
        let of = |took| pause_of_failed(Duration::from_millis(took)).as_millis();
        assert_eq!([of(0), of(5_000), of(60_000)], [2_000, 5_000, 30_000]);
    }
}
