//! Which reasons the log has had: a pure decision, the clock is read elsewhere.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A reason that was not met for this long is said again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// So many are known at once. Reasons may name queues of jobs: more are not logged.
const KNOWN: usize = 20;

/// Reasons with when each was met last.
#[derive(Debug, Default)]
pub(crate) struct Repeats(BTreeMap<String, Instant>);

impl Repeats {
    /// Whether the log says this reason now: it was not met for a while.
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
    use super::{FORGOTTEN_AFTER, KNOWN, Repeats};
    use std::time::{Duration, Instant};

    #[test]
    fn says_a_reason_once_for_as_long_as_it_is_met() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        assert!(repeats.is_new("full", start));
        for second in 1..300 {
            assert!(!repeats.is_new("full", start + Duration::from_secs(second)));
        }
        let later = start + Duration::from_secs(299) + FORGOTTEN_AFTER;
        assert!(repeats.is_new("full", later));
    }

    #[test]
    fn says_no_more_than_a_few_reasons_however_many_there_are() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let new = (0..1_000).filter(|n| repeats.is_new(&format!("queue {n}"), now));
        assert_eq!(new.count(), KNOWN);
    }
}
