//! Limits the size of claims of a queue with several priorities: an urgent job waits until the
//! claim in flight has ended.

use std::time::Duration;

use super::MAX_CLAIM_JOBS;

/// The most time that the jobs of a claim may add to it.
const MAX_ADDED_TIME: Duration = Duration::from_millis(20);
/// The smallest limit: in a smaller claim the fixed cost would dominate.
const MIN_LIMIT: usize = 1_000;

/// Adapts the limit to the current cost of claimed jobs on this server.
#[derive(Debug)]
pub(super) struct ClaimSize {
    most: usize,
    /// The fixed time of a claim, mostly the round trip to the server. It increases slowly, because
    /// a round trip can become longer.
    quickest: Option<Duration>,
}

/// Growth of the fixed time with each claim.
const FIXED_TIME_GROWTH: f64 = 1.001;

impl Default for ClaimSize {
    fn default() -> Self {
        Self {
            most: MAX_CLAIM_JOBS,
            quickest: None,
        }
    }
}

impl ClaimSize {
    /// Returns the most jobs of the next claim, for a queue with this many known priorities.
    pub(super) fn limit(&self, priorities: usize) -> usize {
        if priorities > 1 {
            self.most
        } else {
            MAX_CLAIM_JOBS
        }
    }

    /// Records that a claim of at most `asked` jobs brought this many in this time.
    pub(super) fn record_claim(&mut self, asked: usize, jobs: usize, time: Duration) {
        let known = self.quickest.map(|known| known.mul_f64(FIXED_TIME_GROWTH));
        let quickest = known.map_or(time, |known| known.min(time));
        self.quickest = Some(quickest);
        let cost = time - quickest;
        if cost > MAX_ADDED_TIME && jobs > self.most / 2 {
            self.most = (self.most / 2).max(MIN_LIMIT);
        } else if cost < MAX_ADDED_TIME / 3 && jobs == asked && asked == self.most {
            self.most = (self.most * 2).min(MAX_CLAIM_JOBS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// Makes this many claims of the largest size, and returns the limit after them.
    fn after(claims: usize, pace: &mut ClaimSize, per_job: Duration) -> usize {
        for _ in 0..claims {
            let asked = pace.limit(2);
            let jobs = u32::try_from(asked).unwrap();
            pace.record_claim(asked, asked, ROUND_TRIP + per_job * jobs);
        }
        pace.limit(2)
    }

    #[test]
    fn claims_shrink_while_claiming_is_slow_and_grow_again_when_it_is_fast() {
        let mut pace = ClaimSize::default();
        pace.record_claim(5_000, 0, ROUND_TRIP);
        assert_eq!(pace.limit(1), MAX_CLAIM_JOBS);
        assert_eq!(
            after(3, &mut pace, Duration::from_micros(2)),
            MAX_CLAIM_JOBS
        );
        assert_eq!(after(9, &mut pace, Duration::from_micros(9)), 1_250);
        assert_eq!(pace.limit(1), MAX_CLAIM_JOBS, "nobody waits behind it");
        assert_eq!(after(9, &mut pace, Duration::from_micros(90)), MIN_LIMIT);
        assert_eq!(
            after(9, &mut pace, Duration::from_micros(1)),
            MAX_CLAIM_JOBS
        );
    }

    #[test]
    fn round_trip_estimates_follow_a_slower_network() {
        let mut pace = ClaimSize::default();
        pace.record_claim(5_000, 0, Duration::from_millis(1));
        let per_job = Duration::from_micros(1);
        assert_eq!(after(9, &mut pace, per_job), MIN_LIMIT);
        assert_eq!(after(9_000, &mut pace, per_job), MAX_CLAIM_JOBS);
    }

    #[test]
    fn slow_small_claims_do_not_change_the_batch_size() {
        let mut pace = ClaimSize::default();
        pace.record_claim(5_000, 0, ROUND_TRIP);
        pace.record_claim(5_000, 5, ROUND_TRIP * 9);
        assert_eq!(pace.limit(2), MAX_CLAIM_JOBS);
    }
}
