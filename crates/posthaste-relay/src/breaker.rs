//! When a destination that does not answer is tried again: a pure decision, the clock is read
//! elsewhere.

use std::time::{Duration, Instant};

use posthaste::Backoff;

/// What was down is noticed to be back within the longest wait.
const WAIT: Backoff = Backoff {
    base: Duration::from_millis(50),
    cap: Duration::from_secs(1),
};

/// Open while the destination does not answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    opened_until: Option<Instant>,
}

impl Breaker {
    /// It did not answer. `jitter`, between 0 and 1, keeps many relays from coming back at the same
    /// moment.
    pub(super) fn failed(&mut self, now: Instant, jitter: f64) {
        self.opened_until = Some(now + WAIT.after(self.failures, jitter));
        self.failures = self.failures.saturating_add(1);
    }

    /// It would take messages again. Only one that it took shows that it does: until then each
    /// failure is waited for longer.
    pub(super) fn close(&mut self) {
        self.opened_until = None;
    }

    /// It took a message.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Until when it is left alone; nothing: it is not known to be down.
    pub(super) fn opened_until(&self) -> Option<Instant> {
        self.opened_until
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, WAIT};
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
        assert_eq!(wait(&mut breaker, 0.0), WAIT.cap / 2);
    }

    #[test]
    fn a_destination_that_only_seems_to_be_back_is_waited_for_ever_longer() {
        let mut breaker = Breaker::default();
        wait(&mut breaker, 1.0);
        breaker.close();
        assert_eq!(breaker.opened_until(), None);
        assert_eq!(wait(&mut breaker, 1.0), Duration::from_millis(100));
        breaker.succeeded();
        assert_eq!(wait(&mut breaker, 1.0), Duration::from_millis(50));
    }
}
