//! Measures how long the database has not answered.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// The first unanswered request of a loop since the last answer.
#[derive(Debug, Default)]
pub(crate) struct OldestUnanswered(Mutex<Option<Instant>>);

impl OldestUnanswered {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock()
    }

    /// Records a request. An error is not an answer: earlier requests stay unanswered.
    pub(crate) fn record_request(&self) {
        self.since().get_or_insert_with(Instant::now);
    }

    /// Records an answer.
    pub(crate) fn record_answer(&self) {
        *self.since() = None;
    }

    /// Returns how long the oldest request has been unanswered.
    pub(crate) fn waiting_time(&self) -> Duration {
        self.since().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::OldestUnanswered;

    #[test]
    fn the_oldest_unanswered_request_survives_repeated_failures() {
        let owed = OldestUnanswered::default();
        assert_eq!(owed.waiting_time(), Duration::ZERO);
        owed.record_request();
        let since = *owed.since();
        owed.record_request();
        assert_eq!(*owed.since(), since);
        assert!(owed.waiting_time() > Duration::ZERO);
        owed.record_answer();
        assert_eq!(owed.waiting_time(), Duration::ZERO);
    }
}
