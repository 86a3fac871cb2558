//! The time during which no other worker can have rescued the jobs of a worker.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};

/// A moment by two clocks: the monotonic clock may stop while the machine is suspended, and the
/// wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockPair {
    steady: Instant,
    wall: SystemTime,
}

impl ClockPair {
    pub(crate) fn now() -> Self {
        Self {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Returns the longer of the two elapsed times.
    fn elapsed(self) -> Duration {
        let by_wall = self.wall.elapsed().unwrap_or_default();
        self.steady.elapsed().max(by_wall)
    }
}

/// A worker is declared dead after `rescue_after` without a heartbeat. The time counts from when a
/// heartbeat was sent, because it cannot have arrived earlier.
#[derive(Debug)]
pub(crate) struct Tenure {
    rescue_after: Duration,
    /// When the last answered heartbeat was sent; `None` after the worker was declared dead.
    renewed: Mutex<Option<ClockPair>>,
}

impl Tenure {
    /// Creates the tenure of a worker whose registration was sent at this moment.
    pub(crate) fn new(rescue_after: Duration, sent: ClockPair) -> Self {
        Self {
            rescue_after,
            renewed: Mutex::new(Some(sent)),
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<ClockPair>> {
        self.renewed.lock()
    }

    /// Records the answer to a heartbeat that was sent at this moment.
    pub(crate) fn renew(&self, sent: ClockPair) {
        if let Some(last) = &mut *self.last()
            && last.steady < sent.steady
        {
            *last = sent;
        }
    }

    /// Records that the worker was declared dead.
    pub(crate) fn end(&self) {
        *self.last() = None;
    }

    /// Whether other workers may have rescued its jobs.
    pub(crate) fn is_over(&self) -> bool {
        self.last()
            .is_none_or(|last| last.elapsed() >= self.rescue_after)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ClockPair, Tenure};

    const LONG: Duration = Duration::from_secs(30);

    fn ago(steady: Duration, wall: Duration) -> ClockPair {
        let now = ClockPair::now();
        ClockPair {
            steady: now.steady.checked_sub(steady).unwrap(),
            wall: now.wall - wall,
        }
    }

    #[test]
    fn expires_by_either_clock_and_is_renewed_by_an_answer() {
        for (steady, wall, is_over) in [
            (LONG / 2, LONG / 2, false),
            (LONG, LONG / 2, true),
            (LONG / 2, LONG, true),
        ] {
            let tenure = Tenure::new(LONG, ago(steady, wall));
            assert_eq!(tenure.is_over(), is_over, "{steady:?} {wall:?}");
            tenure.renew(ClockPair::now());
            assert!(!tenure.is_over());
        }
    }

    #[test]
    fn late_answers_renew_from_the_time_of_their_request() {
        let tenure = Tenure::new(LONG, ago(LONG * 3, LONG * 3));
        tenure.renew(ago(LONG * 2, LONG * 2));
        assert!(tenure.is_over());
        tenure.renew(ClockPair::now());
        tenure.renew(ago(LONG * 2, LONG * 2));
        assert!(!tenure.is_over());
    }

    #[test]
    fn a_worker_declared_dead_is_never_renewed() {
        let tenure = Tenure::new(LONG, ClockPair::now());
        tenure.end();
        tenure.renew(ClockPair::now());
        assert!(tenure.is_over());
    }
}
