//! Decides when a receiver that accepts nothing is tried again. Pure: the clock is read elsewhere.

use std::time::{Duration, Instant};

use crate::retry::Backoff;

/// The delay between two attempts; a recovered receiver is noticed within the longest one.
const RETRY_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(50),
    cap: Duration::from_secs(1),
};

/// A circuit breaker: stops sending to a receiver that accepts nothing, and decides when it is
/// tried again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Breaker {
    failures: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Instant),
    /// One job shows whether the receiver accepts jobs again.
    HalfOpen {
        is_taken: bool,
    },
}

impl Breaker {
    /// Opens the breaker because the receiver accepted nothing. `jitter`, between 0 and 1, keeps
    /// workers from retrying at the same moment.
    pub fn failed(&mut self, now: Instant, jitter: f64) {
        self.state = State::Open(now + RETRY_BACKOFF.after(self.failures, jitter));
        self.failures = self.failures.saturating_add(1);
    }

    /// Closes the breaker because the receiver seems available. Only [`succeeded`](Self::succeeded)
    /// resets the delay: until then each further failure is followed by a longer one.
    pub fn close(&mut self) {
        self.state = State::Closed;
    }

    /// Resets the breaker because the receiver accepted a job. Returns whether jobs were held back
    /// until now.
    pub fn succeeded(&mut self) -> bool {
        let before = std::mem::take(self);
        !matches!(before.state, State::Closed)
    }

    /// Admits one job, which shows whether the receiver accepts jobs again.
    pub fn half_open(&mut self) {
        self.state = State::HalfOpen { is_taken: false };
    }

    /// Returns how many of these jobs may be sent now. The one of a half-open breaker is counted as
    /// sent.
    pub fn admit(&mut self, jobs: usize) -> usize {
        let admitted = self.room(jobs);
        if let State::HalfOpen { is_taken } = &mut self.state {
            *is_taken |= admitted > 0;
        }
        admitted
    }

    /// Returns the same as [`admit`](Self::admit), without counting.
    pub fn room(&self, jobs: usize) -> usize {
        match self.state {
            State::Closed => jobs,
            State::HalfOpen { is_taken: false } => jobs.min(1),
            State::HalfOpen { is_taken: true } | State::Open(_) => 0,
        }
    }

    /// Releases an admitted job that had no result. Returns whether another one may be sent
    /// instead.
    pub fn release(&mut self) -> bool {
        let is_waited_for = matches!(self.state, State::HalfOpen { is_taken: true });
        if is_waited_for {
            self.half_open();
        }
        is_waited_for
    }

    /// Returns when the open breaker ends; `None` if it is closed or half-open.
    pub fn opened_until(&self) -> Option<Instant> {
        match self.state {
            State::Open(until) => Some(until),
            State::Closed | State::HalfOpen { .. } => None,
        }
    }

    /// Whether one job is to show whether the receiver accepts jobs again.
    pub fn is_half_open(&self) -> bool {
        matches!(self.state, State::HalfOpen { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, RETRY_BACKOFF};
    use std::time::{Duration, Instant};

    fn wait(breaker: &mut Breaker, jitter: f64) -> Duration {
        let now = Instant::now();
        breaker.failed(now, jitter);
        breaker.opened_until().expect("open") - now
    }

    #[test]
    fn waits_double_up_to_a_second_of_which_half_is_jitter() {
        let mut breaker = Breaker::default();
        let waits: Vec<u128> = (0..6)
            .map(|_| wait(&mut breaker, 1.0).as_millis())
            .collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000]);
        assert_eq!(wait(&mut breaker, 0.0), RETRY_BACKOFF.cap / 2);
    }

    #[test]
    fn backs_off_further_when_a_recovery_fails() {
        let mut breaker = Breaker::default();
        wait(&mut breaker, 1.0);
        breaker.close();
        assert_eq!(breaker.opened_until(), None);
        assert_eq!(wait(&mut breaker, 1.0), Duration::from_millis(100));
        breaker.succeeded();
        assert_eq!(wait(&mut breaker, 1.0), Duration::from_millis(50));
    }

    #[test]
    fn a_half_open_breaker_admits_one_job_at_a_time() {
        let mut breaker = Breaker::default();
        assert_eq!(breaker.admit(7), 7);
        breaker.failed(Instant::now(), 1.0);
        assert_eq!(breaker.admit(7), 0);
        breaker.half_open();
        assert_eq!(breaker.admit(0), 0);
        assert_eq!([breaker.admit(7), breaker.admit(7)], [1, 0]);
        assert!(breaker.release() && !breaker.release());
        assert_eq!([breaker.admit(7), breaker.admit(7)], [1, 0]);
        breaker.failed(Instant::now(), 1.0);
        breaker.half_open();
        assert_eq!(breaker.admit(7), 1);
        assert!(breaker.succeeded() && !breaker.succeeded());
        assert!(!breaker.release());
        assert_eq!(breaker.admit(7), 7);
    }
}
