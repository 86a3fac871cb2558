//! One read of the database, shared by all callers.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;

/// The longest time between two reads while callers ask, and the longest timeout of a read. Slow
/// reads are made less often, so that they take at most a fiftieth of the time, but no less often
/// than this.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The data that a [`Collector`] reads.
pub trait Source: Send + Sync + 'static {
    /// The result of a read.
    type Output: Clone + Send;
    /// The error of a failed read.
    type Error: Clone + Send;

    /// Reads the data.
    fn read(&self) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// Returns the error of a read that did not end within this time.
    fn timeout_error(&self, within: Duration) -> Self::Error;
}

/// Reads when a caller asks and the cached answer has expired. The time between two reads is at
/// least `every`, and longer for slow reads, so that they take at most a fiftieth of the time.
/// Other callers get the cached answer; callers during a read wait for it.
pub struct Collector<S: Source>(Arc<Shared<S>>);

impl<S: Source> Clone for Collector<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The answer of a read.
type Answer<S> = Result<<S as Source>::Output, <S as Source>::Error>;

struct Shared<S: Source> {
    source: S,
    every: Duration,
    within: Duration,
    last: Mutex<Option<CachedRead<Answer<S>>>>,
}

struct CachedRead<T> {
    /// The answer is cached until then.
    until: Instant,
    answer: T,
}

/// Returns the time until the next read after one that took this long.
fn pause_after_read(took: Duration, every: Duration) -> Duration {
    (took * 50).clamp(every, MAX_PAUSE)
}

/// Returns the time until a failed read is repeated. It is short because the database may answer
/// again soon.
fn pause_after_failed_read(took: Duration, every: Duration) -> Duration {
    took.clamp(every, MAX_PAUSE)
}

impl<S: Source> Collector<S> {
    /// Creates a collector that reads at most once in `every`, with `within` as the timeout of a
    /// read.
    pub fn new(source: S, every: Duration, within: Duration) -> Self {
        Self(Arc::new(Shared {
            source,
            every,
            within: within.min(MAX_PAUSE),
            last: Mutex::default(),
        }))
    }

    /// Returns the cached answer, or reads again if it has expired.
    pub async fn get(&self) -> Result<S::Output, S::Error> {
        if let Some(read) = &*self.0.last.lock().await
            && read.until > Instant::now()
        {
            return read.answer.clone();
        }
        // Other callers wait for this read too, so it continues if this caller is cancelled.
        let shared = Arc::clone(&self.0);
        let read = tokio::spawn(async move { shared.read_unless_cached().await });
        match read.await {
            Ok(answer) => answer,
            Err(_) => Err(self.0.source.timeout_error(Duration::ZERO)),
        }
    }

    /// Drops the cached answer, so the next caller reads again.
    pub async fn invalidate(&self) {
        *self.0.last.lock().await = None;
    }
}

impl<S: Source> Shared<S> {
    async fn read_unless_cached(&self) -> Result<S::Output, S::Error> {
        let mut last = self.last.lock().await;
        if let Some(read) = &*last
            && read.until > Instant::now()
        {
            return read.answer.clone();
        }
        let begun = Instant::now();
        // All callers wait for it, and a half-open connection never answers.
        let read = timeout(self.within, self.source.read()).await;
        let answer = read.unwrap_or_else(|_| Err(self.source.timeout_error(self.within)));
        let took = begun.elapsed();
        let pause = match &answer {
            Ok(_) => pause_after_read(took, self.every),
            Err(_) => pause_after_failed_read(took, self.every),
        };
        *last = Some(CachedRead {
            until: Instant::now() + pause,
            answer: answer.clone(),
        });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(2);

    #[test]
    fn reads_use_two_percent_of_the_time_and_repeat_within_30_s() {
        let of = |took| pause_after_read(Duration::from_millis(took), EVERY).as_millis();
        assert_eq!([of(0), of(40), of(330)], [2_000, 2_000, 16_500]);
        assert_eq!([of(600), of(10_000)], [30_000, 30_000]);
    }

    #[test]
    fn failed_reads_are_repeated_after_their_duration() {
        let of = |took| pause_after_failed_read(Duration::from_millis(took), EVERY).as_millis();
        assert_eq!([of(0), of(5_000), of(60_000)], [2_000, 5_000, 30_000]);
    }
}
