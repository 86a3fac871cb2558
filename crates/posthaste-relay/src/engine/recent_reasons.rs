//! Decides which reasons are logged. Pure: callers read the clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A reason is logged again after it was absent for this long.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The most reasons that are remembered. Reasons may name queues of jobs, so more are not logged.
const MAX_REASONS: usize = 20;

/// Reasons, each with the time of its last occurrence.
#[derive(Debug, Default)]
pub(crate) struct RecentReasons(BTreeMap<String, Instant>);

impl RecentReasons {
    /// Returns whether to log this reason: it has not occurred for a while.
    pub(crate) fn should_log(&mut self, reason: &str, now: Instant) -> bool {
        self.0
            .retain(|_, met| now.saturating_duration_since(*met) < LOG_AGAIN_AFTER);
        if let Some(met) = self.0.get_mut(reason) {
            *met = now;
            return false;
        }
        if self.0.len() >= MAX_REASONS {
            return false;
        }
        self.0.insert(reason.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{LOG_AGAIN_AFTER, MAX_REASONS, RecentReasons};
    use std::time::{Duration, Instant};

    #[test]
    fn logs_a_recurring_reason_once() {
        let (mut recent_reasons, start) = (RecentReasons::default(), Instant::now());
        assert!(recent_reasons.should_log("full", start));
        for second in 1..300 {
            assert!(!recent_reasons.should_log("full", start + Duration::from_secs(second)));
        }
        let later = start + Duration::from_secs(299) + LOG_AGAIN_AFTER;
        assert!(recent_reasons.should_log("full", later));
    }

    #[test]
    fn logs_a_bounded_number_of_reasons() {
        let (mut recent_reasons, now) = (RecentReasons::default(), Instant::now());
        let new = (0..1_000).filter(|n| recent_reasons.should_log(&format!("queue {n}"), now));
        assert_eq!(new.count(), MAX_REASONS);
    }
}
