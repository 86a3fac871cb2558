//! Since when the database owes an answer.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// What one loop asks, again and again: the first question since the last answer.
#[derive(Debug, Default)]
pub(crate) struct OldestUnanswered(Mutex<Option<Instant>>);

impl OldestUnanswered {
    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock()
    }

    /// It is asked. An error is not an answer: what was asked before it still waits.
    pub(crate) fn asked(&self) {
        self.since().get_or_insert_with(Instant::now);
    }

    /// It has answered.
    pub(crate) fn answered(&self) {
        *self.since() = None;
    }

    /// For how long it has not answered.
    pub(crate) fn waited(&self) -> Duration {
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
        assert_eq!(owed.waited(), Duration::ZERO);
        owed.asked();
        let since = *owed.since();
        owed.asked();
        assert_eq!(*owed.since(), since);
        assert!(owed.waited() > Duration::ZERO);
        owed.answered();
        assert_eq!(owed.waited(), Duration::ZERO);
    }
}
