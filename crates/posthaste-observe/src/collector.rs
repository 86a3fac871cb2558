//! One read of the database for all who ask, however many they are.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::timeout;

/// Where a read takes long, the next one is made later: reads take a fiftieth of the time, unless
/// figures would be older than this.
const OLDEST: Duration = Duration::from_secs(30);

/// What a [`Collector`] reads, and how.
pub trait Source: Send + Sync + 'static {
    /// What is read.
    type Output: Clone + Send;
    /// Why it could not be read.
    type Error: Clone + Send;

    /// Reads it.
    fn read(&self) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// The error of a read that did not end within this time.
    fn late(&self, within: Duration) -> Self::Error;
}

/// Reads when somebody asks, and no more often than every so many seconds, or than a fiftieth of
/// the time allows. Callers in between get the last answer; callers during a read wait for it.
pub struct Collector<S: Source>(Arc<Shared<S>>);

impl<S: Source> Clone for Collector<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What a read brought.
type Answer<S> = Result<<S as Source>::Output, <S as Source>::Error>;

struct Shared<S: Source> {
    source: S,
    every: Duration,
    within: Duration,
    last: Mutex<Option<Read<Answer<S>>>>,
}

struct Read<T> {
    /// Until when nothing is asked.
    until: Instant,
    answer: T,
}

/// The time between two reads, after one that took so long.
fn pause(took: Duration, every: Duration) -> Duration {
    (took * 50).clamp(every, OLDEST)
}

/// The time until a failed read is repeated: soon the database may answer again.
fn pause_of_failed(took: Duration, every: Duration) -> Duration {
    took.clamp(every, OLDEST)
}

impl<S: Source> Collector<S> {
    /// Reads no more often than `every`, and gives a read up after `within`.
    pub fn new(source: S, every: Duration, within: Duration) -> Self {
        Self(Arc::new(Shared {
            source,
            every,
            within: within.min(OLDEST),
            last: Mutex::default(),
        }))
    }

    /// The last answer, read anew where it is too old.
    pub async fn get(&self) -> Result<S::Output, S::Error> {
        if let Some(read) = &*self.0.last.lock().await
            && read.until > Instant::now()
        {
            return read.answer.clone();
        }
        // The read goes on when its caller has gone: it is for all.
        let shared = Arc::clone(&self.0);
        let read = tokio::spawn(async move { shared.read().await });
        match read.await {
            Ok(answer) => answer,
            Err(_) => Err(self.0.source.late(Duration::ZERO)),
        }
    }

    /// The next caller gets what is read after this.
    pub async fn forget(&self) {
        *self.0.last.lock().await = None;
    }
}

impl<S: Source> Shared<S> {
    async fn read(&self) -> Result<S::Output, S::Error> {
        let mut last = self.last.lock().await;
        if let Some(read) = &*last
            && read.until > Instant::now()
        {
            return read.answer.clone();
        }
        let begun = Instant::now();
        // All wait for it, and a half-open connection never answers.
        let read = timeout(self.within, self.source.read()).await;
        let answer = read.unwrap_or_else(|_| Err(self.source.late(self.within)));
        let took = begun.elapsed();
        let pause = match &answer {
            Ok(_) => pause(took, self.every),
            Err(_) => pause_of_failed(took, self.every),
        };
        *last = Some(Read {
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
        let of = |took| pause(Duration::from_millis(took), EVERY).as_millis();
        assert_eq!([of(0), of(40), of(330)], [2_000, 2_000, 16_500]);
        assert_eq!([of(600), of(10_000)], [30_000, 30_000]);
    }

    #[test]
    fn failed_reads_are_repeated_after_their_duration() {
        let of = |took| pause_of_failed(Duration::from_millis(took), EVERY).as_millis();
        assert_eq!([of(0), of(5_000), of(60_000)], [2_000, 5_000, 30_000]);
    }
}
