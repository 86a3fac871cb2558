//! Decides which reasons are logged. Pure: callers read the clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A reason is logged again after it was absent for this long.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// The most reasons that are remembered. Reasons may name queues of jobs, so more are not logged.
const KNOWN: usize = 20;

/// Reasons, each with the time of its last occurrence.
#[derive(Debug, Default)]
pub(crate) struct RecentReasons(BTreeMap<String, Instant>);

impl RecentReasons {
    /// Returns whether to log this reason: it has not occurred for a while.
    pub(crate) fn is_new(&mut self, reason: &str, now: Instant) -> bool {
        self.0
            .retain(|_, met| now.saturating_duration_since(*met) < FORGOTTEN_AFTER);
        if let Some(met) = self.0.get_mut(reason) {
            *met = now;
            return false;
        }
        if self.0.len() >= KNOWN {
            return false;
        }
        self.0.insert(reason.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{FORGOTTEN_AFTER, KNOWN, RecentReasons};
    use std::time::{Duration, Instant};

    #[test]
    fn logs_a_recurring_reason_once() {
        let (mut recent_reasons, start) = (RecentReasons::default(), Instant::now());
        assert!(recent_reasons.is_new("full", start));
        for second in 1..300 {
            assert!(!recent_reasons.is_new("full", start + Duration::from_secs(second)));
        }
        let later = start + Duration::from_secs(299) + FORGOTTEN_AFTER;
        assert!(recent_reasons.is_new("full", later));
    }

    #[test]
    fn logs_a_bounded_number_of_reasons() {
        let (mut recent_reasons, now) = (RecentReasons::default(), Instant::now());
        let new = (0..1_000).filter(|n| recent_reasons.is_new(&format!("queue {n}"), now));
        assert_eq!(new.count(), KNOWN);
    }
}
