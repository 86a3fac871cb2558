//! Counting: deltas of counters, and marks between the jobs of a backlog.

use std::time::{Duration, Instant};

use super::attempt;
use crate::store::reconnecting::ReconnectingClient;

/// Jobs counted in one transaction, and how many lie between two marks (sql/functions/marks.sql).
/// Half of the time goes into marks. So in a backlog each transaction doubles their distance, at
/// most this often.
const COUNT: i32 = 20_000;
const COUNT_STEP: i32 = 125;
const COARSEST: u32 = 3;
/// Deltas of counters beyond this are added up and forgotten.
const STATS_BYTES: i64 = 8 << 20;
/// The pause while there is nothing to be counted, at least.
pub(super) const COUNT_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Counting {
    /// What had been written when all of it was counted.
    written: String,
    /// How often the distance of marks was doubled in this backlog.
    coarser: u32,
}

impl Counting {
    /// Whether there is more to be counted, and the pause: counting goes on for a quarter of the
    /// time while there is a backlog; checking whether there is takes a five hundredth.
    pub(super) async fn count(&mut self, link: &ReconnectingClient) -> (bool, Duration) {
        let started = Instant::now();
        let known = self.written.as_str();
        let step = COUNT_STEP << self.coarser;
        let counted = attempt!(link, account(COUNT, step, STATS_BYTES, known));
        // None: there is more to be counted.
        let all = counted.as_ref().map(Option::is_some);
        let (is_more, coarser) = continue_counting(all, self.coarser);
        self.coarser = coarser;
        let pause = if is_more {
            started.elapsed() * 3
        } else {
            (started.elapsed() * 500).clamp(COUNT_EVERY, COUNT_EVERY * 60)
        };
        let written = counted.flatten().filter(|_| !is_more);
        self.written = written.unwrap_or_default();
        (is_more, pause)
    }

    /// As it is after all was counted.
    #[cfg(test)]
    pub(super) fn complete() -> Self {
        Self {
            written: "counted".to_owned(),
            coarser: 0,
        }
    }

    /// Whether all was counted when it was tried last.
    pub(super) fn is_complete(&self) -> bool {
        !self.written.is_empty()
    }
}

/// Whether counting goes on at once, and how coarsely: `all` says whether all was counted, unless
/// that failed. Between marks that lie far apart there may be more.
fn continue_counting(all: Option<bool>, coarser: u32) -> (bool, u32) {
    match all {
        Some(false) => (true, (coarser + 1).min(COARSEST)),
        Some(true) => (coarser > 0, 0),
        None => (false, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_backlogs_are_counted_coarsely_and_their_remainder_exactly() {
        assert_eq!(continue_counting(Some(false), 0), (true, 1));
        assert_eq!(continue_counting(Some(false), COARSEST), (true, COARSEST));
        assert_eq!(continue_counting(Some(true), COARSEST), (true, 0));
        assert_eq!(continue_counting(Some(true), 0), (false, 0));
        assert_eq!(continue_counting(None, COARSEST), (false, 0));
    }
}
