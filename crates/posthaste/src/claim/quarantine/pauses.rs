//! How long quarantined jobs may make other work wait: a pure decision, the clock is read
//! elsewhere.

use std::time::Duration;

/// What running jobs are waited for at first.
const FIRST: Duration = Duration::from_secs(10);
/// The shortest time between two turns of quarantined jobs.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// The longest time between two turns.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How often they are looked for while there were none.
const CALM: Duration = Duration::from_secs(1);

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// What ran did not end in time.
    None,
    /// Quarantined jobs ran.
    Had,
    /// One of them was given back, still quarantined, and came a second time.
    Repeated,
}

/// Claims pause while quarantined jobs wait for what runs, and while they run. Whatever was running
/// before the pause ends at some time, so a wait that is long enough succeeds: each one that was in
/// vain is followed by one twice as long. And claims go on for at least as long as they were
/// paused, so that quarantined jobs take half of the process's time at most.
#[derive(Debug)]
pub(crate) struct Pauses {
    wait: Duration,
    /// At least; twice as long after each turn in a row in which a job was given back.
    rest: Duration,
    longest: Option<Duration>,
}

impl Pauses {
    /// With the time limit of the slowest handler, if all have one. A wait of twice that is long
    /// enough: jobs may stand in line for those that run.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self {
            wait: FIRST,
            rest: LOOK,
            longest: limit.map(|limit| limit.saturating_mul(2).saturating_add(FIRST)),
        }
    }

    /// How long to wait for what runs.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Claims were paused for this long, for this turn; how long claims go on now.
    pub(crate) fn rest(&mut self, turn: Turn, paused: Duration) -> Duration {
        match turn {
            Turn::None => {
                let longer = self.wait.saturating_mul(2);
                self.wait = self.longest.map_or(longer, |longest| longer.min(longest));
            }
            Turn::Had => self.rest = LOOK,
            Turn::Repeated => self.rest = (self.rest * 2).min(LONGEST_REST),
        }
        paused.max(self.rest)
    }

    /// There are no quarantined jobs; how long until the next look.
    pub(crate) fn none_found(&mut self) -> Duration {
        self.wait = FIRST;
        self.rest = LOOK;
        CALM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quarantined jobs beside jobs that run for this long, one of which has always just begun: the
    /// wait that succeeded, and the share of the time that claims were paused until then.
    fn until_alone(limit: Option<Duration>, run: Duration) -> (Duration, f64) {
        let mut patience = Pauses::new(limit);
        let (mut paused, mut open) = (Duration::ZERO, Duration::ZERO);
        loop {
            let wait = patience.wait();
            let alone = run <= wait;
            paused += wait.min(run);
            let turn = if alone { Turn::Had } else { Turn::None };
            open += patience.rest(turn, wait.min(run));
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
                    wait <= FIRST.max(run * 2),
                    "{run:?} was waited for {wait:?}"
                );
            }
        }
    }

    #[test]
    fn the_wait_is_bounded_by_the_time_limit_and_begins_anew_when_there_are_no_quarantined_jobs() {
        let mut patience = Pauses::new(Some(Duration::from_secs(20)));
        let mut waits = Vec::new();
        for _ in 0..5 {
            waits.push(patience.wait().as_secs());
            patience.rest(Turn::None, patience.wait());
        }
        assert_eq!(waits, [10, 20, 40, 50, 50]);
        patience.none_found();
        assert_eq!(patience.wait(), FIRST);
    }

    #[test]
    fn a_turn_keeps_its_wait() {
        let mut patience = Pauses::new(None);
        patience.rest(Turn::None, FIRST);
        let rest = patience.rest(Turn::Had, Duration::from_secs(15));
        assert_eq!(rest, Duration::from_secs(15));
        assert_eq!(patience.wait(), FIRST * 2);
        assert_eq!(patience.rest(Turn::Had, Duration::ZERO), LOOK);
    }
    #[test]
    fn jobs_released_in_each_turn_make_turns_rarer() {
        let mut patience = Pauses::new(None);
        let rests = (0..9).map(|_| patience.rest(Turn::Repeated, Duration::ZERO).as_secs());
        assert_eq!(rests.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(patience.rest(Turn::Had, Duration::ZERO), LOOK);
    }
}
