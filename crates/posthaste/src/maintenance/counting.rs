//! Counting of jobs: sums deltas of counters, and writes marks into the backlog.

use std::time::{Duration, Instant};

use super::attempt;
use crate::store::reconnecting::ReconnectingClient;

/// Jobs counted in one transaction, and jobs between two marks (sql/functions/marks.sql). Half of
/// the time is spent on marks, so each transaction doubles their distance while there is a backlog,
/// at most `MAX_COARSENESS` times.
const COUNT_BATCH: i32 = 20_000;
const JOBS_PER_MARK: i32 = 125;
const MAX_COARSENESS: u32 = 3;
/// Deltas of counters beyond this size in bytes are summed and removed.
const MAX_DELTA_BYTES: i64 = 8 << 20;
/// The shortest pause while there is nothing to count.
pub(super) const IDLE_COUNT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Counting {
    /// The place up to which jobs were written when everything was counted; empty if some are
    /// uncounted.
    written: String,
    /// How often the distance between marks was doubled in this backlog.
    coarser: u32,
}

impl Counting {
    /// Counts once. Returns whether there is more to count, and the pause. Counting takes a quarter
    /// of the time while there is a backlog; checking for one takes a five-hundredth.
    pub(super) async fn count(&mut self, link: &ReconnectingClient) -> (bool, Duration) {
        let started = Instant::now();
        let known = self.written.as_str();
        let step = JOBS_PER_MARK << self.coarser;
        let counted = attempt!(
            link,
            count_new_jobs(COUNT_BATCH, step, MAX_DELTA_BYTES, known)
        );
        // `None`: there is more to count.
        let all = counted.as_ref().map(Option::is_some);
        let (is_more, coarser) = continue_counting(all, self.coarser);
        self.coarser = coarser;
        let pause = if is_more {
            started.elapsed() * 3
        } else {
            (started.elapsed() * 500).clamp(IDLE_COUNT_INTERVAL, IDLE_COUNT_INTERVAL * 60)
        };
        let written = counted.flatten().filter(|_| !is_more);
        self.written = written.unwrap_or_default();
        (is_more, pause)
    }

    /// The state after everything was counted, for tests.
    #[cfg(test)]
    pub(super) fn complete() -> Self {
        Self {
            written: "counted".to_owned(),
            coarser: 0,
        }
    }

    /// Whether the last call counted everything.
    pub(super) fn is_complete(&self) -> bool {
        !self.written.is_empty()
    }
}

/// Returns whether counting continues at once, and the next coarseness. `all`: whether everything
/// was counted, `None` if counting failed. After coarse marks, one more pass counts exactly.
fn continue_counting(all: Option<bool>, coarser: u32) -> (bool, u32) {
    match all {
        Some(false) => (true, (coarser + 1).min(MAX_COARSENESS)),
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
        assert_eq!(
            continue_counting(Some(false), MAX_COARSENESS),
            (true, MAX_COARSENESS)
        );
        assert_eq!(continue_counting(Some(true), MAX_COARSENESS), (true, 0));
        assert_eq!(continue_counting(Some(true), 0), (false, 0));
        assert_eq!(continue_counting(None, MAX_COARSENESS), (false, 0));
    }
}
