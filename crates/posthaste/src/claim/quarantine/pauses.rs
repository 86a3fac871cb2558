//! Decides how long quarantined jobs may delay other work. Pure: the clock is read elsewhere.

use std::time::Duration;

/// The first wait for running jobs to end.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The shortest time between two turns of quarantined jobs.
pub(crate) const MIN_REST: Duration = Duration::from_millis(500);
/// The longest time between two turns.
const MAX_REST: Duration = Duration::from_secs(60);
/// Time between two polls while there are no quarantined jobs.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnResult {
    /// The running jobs did not end in time.
    None,
    /// Quarantined jobs ran.
    Had,
    /// A quarantined job was given back, still quarantined, and came a second time.
    Repeated,
}

/// The lengths of pauses. Claims pause while quarantined jobs wait for running jobs, and while they
/// run. Every running job ends at some time, so a wait that is long enough succeeds: each wait that
/// timed out is followed by one twice as long. Claims then continue for at least as long as they
/// were paused, so that quarantined jobs take at most half of the process's time.
#[derive(Debug)]
pub(crate) struct Pauses {
    wait: Duration,
    /// The least time that claims continue; doubled after each turn in a row in which a job was
    /// given back.
    rest: Duration,
    longest: Option<Duration>,
}

impl Pauses {
    /// Takes the time limit of the slowest handler, if all have one. Twice that is long enough:
    /// jobs may be queued for those that run.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self {
            wait: FIRST_WAIT,
            rest: MIN_REST,
            longest: limit.map(|limit| limit.saturating_mul(2).saturating_add(FIRST_WAIT)),
        }
    }

    /// Returns how long to wait for running jobs.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Records a turn for which claims were paused this long, and returns how long claims continue
    /// now.
    pub(crate) fn record_turn(&mut self, turn: TurnResult, paused: Duration) -> Duration {
        match turn {
            TurnResult::None => {
                let longer = self.wait.saturating_mul(2);
                self.wait = self.longest.map_or(longer, |longest| longer.min(longest));
            }
            TurnResult::Had => self.rest = MIN_REST,
            TurnResult::Repeated => self.rest = (self.rest * 2).min(MAX_REST),
        }
        paused.max(self.rest)
    }

    /// Resets the times because there are no quarantined jobs, and returns the time to the next
    /// poll.
    pub(crate) fn none_found(&mut self) -> Duration {
        self.wait = FIRST_WAIT;
        self.rest = MIN_REST;
        IDLE_POLL_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates quarantined jobs beside jobs that run for this long, one of which has always just
    /// begun. Returns the wait that succeeded, and the share of time in which claims were paused
    /// until then.
    fn until_alone(limit: Option<Duration>, run: Duration) -> (Duration, f64) {
        let mut patience = Pauses::new(limit);
        let (mut paused, mut open) = (Duration::ZERO, Duration::ZERO);
        loop {
            let wait = patience.wait();
            let alone = run <= wait;
            paused += wait.min(run);
            let turn = if alone {
                TurnResult::Had
            } else {
                TurnResult::None
            };
            open += patience.record_turn(turn, wait.min(run));
            if alone {
                return (wait, paused.as_secs_f64() / (paused + open).as_secs_f64());
            }
        }
    }

    #[test]
    fn waiting_takes_at_most_half_of_the_time() {
        let day = Duration::from_secs(86_400);
        for seconds in [0, 1, 9, 10, 11, 60, 300, 3_600, 86_400] {
            let run = Duration::from_secs(seconds);
            for limit in [None, Some(run), Some(day)] {
                let (wait, share) = until_alone(limit, run);
                assert!(wait >= run && share <= 0.5, "{run:?}: {wait:?}, {share}");
                assert!(
                    wait <= FIRST_WAIT.max(run * 2),
                    "{run:?} was waited for {wait:?}"
                );
            }
        }
    }

    #[test]
    fn the_wait_is_bounded_and_restarts_without_quarantined_jobs() {
        let mut patience = Pauses::new(Some(Duration::from_secs(20)));
        let mut waits = Vec::new();
        for _ in 0..5 {
            waits.push(patience.wait().as_secs());
            patience.record_turn(TurnResult::None, patience.wait());
        }
        assert_eq!(waits, [10, 20, 40, 50, 50]);
        patience.none_found();
        assert_eq!(patience.wait(), FIRST_WAIT);
    }

    #[test]
    fn a_turn_keeps_its_wait() {
        let mut patience = Pauses::new(None);
        patience.record_turn(TurnResult::None, FIRST_WAIT);
        let rest = patience.record_turn(TurnResult::Had, Duration::from_secs(15));
        assert_eq!(rest, Duration::from_secs(15));
        assert_eq!(patience.wait(), FIRST_WAIT * 2);
        assert_eq!(
            patience.record_turn(TurnResult::Had, Duration::ZERO),
            MIN_REST
        );
    }
    #[test]
    fn jobs_released_in_each_turn_make_turns_rarer() {
        let mut patience = Pauses::new(None);
        let rests = (0..9).map(|_| {
            patience
                .record_turn(TurnResult::Repeated, Duration::ZERO)
                .as_secs()
        });
        assert_eq!(rests.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(
            patience.record_turn(TurnResult::Had, Duration::ZERO),
            MIN_REST
        );
    }
}
