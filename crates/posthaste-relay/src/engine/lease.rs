//! Permission to send: one ordered relay of a queue at a time, over all processes. Pure, the clock
//! is read elsewhere.
//!
//! The lease is a row of `posthaste.ordered_relay`, by the server's clock. Here it ends so long
//! after it was asked for, by the clock of this process, which is before the server lets it end:
//! the one that was stopped for a while finds its lease over before it sends another byte. Clocks
//! that run at different speeds can cost an overlap of that difference at most.

use std::time::{Duration, Instant};

/// The right of a relay to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lease {
    /// Any number of relays may.
    NotRequired,
    /// Held by another relay, or unknown.
    Missing,
    /// Held by this relay. After it expires, buffered jobs wait here until it is renewed or another
    /// relay takes it.
    Held {
        /// Until when.
        until: Instant,
        /// As which worker: what was claimed as another one is not its to send.
        worker: i64,
        /// Jobs of the one before it, which died: they come first.
        quarantined: bool,
    },
}

impl Lease {
    /// Before the database was asked.
    pub(crate) fn initial(ordered: bool) -> Self {
        match ordered {
            false => Self::NotRequired,
            true => Self::Missing,
        }
    }

    pub(crate) fn may_send(self, now: Instant) -> bool {
        !self.left(now).is_zero()
    }

    pub(crate) fn may_claim(self, now: Instant) -> bool {
        self.may_send(now) && !self.waits_for_quarantined()
    }

    /// Whether what was claimed as this worker is somebody else's now.
    pub(crate) fn has_lost(self, claimed_as: i64) -> bool {
        match self {
            Self::NotRequired => false,
            Self::Missing => true,
            Self::Held { worker, .. } => worker != claimed_as,
        }
    }

    /// It is over at once, as nobody knows who has it.
    pub(crate) fn end(&mut self, now: Instant) {
        if let Self::Held { until, .. } = self {
            *until = now.min(*until);
        }
    }

    /// Whether this relay's lease has expired, with no known successor.
    pub(crate) fn is_over(self, now: Instant) -> bool {
        matches!(self, Self::Held { until, .. } if until <= now)
    }

    /// Whether it is the one before, which lasts longer now.
    pub(crate) fn renews(self, before: Self, now: Instant) -> bool {
        match (before, self) {
            (Self::Held { worker: was, .. }, Self::Held { worker, .. }) => {
                worker == was && self.may_send(now)
            }
            _ => false,
        }
    }

    pub(crate) fn waits_for_quarantined(self) -> bool {
        matches!(
            self,
            Self::Held {
                quarantined: true,
                ..
            }
        )
    }

    /// How long sending may take.
    pub(crate) fn left(self, now: Instant) -> Duration {
        match self {
            Self::NotRequired => Duration::MAX,
            Self::Missing => Duration::ZERO,
            Self::Held { until, .. } => until.saturating_duration_since(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Lease;

    #[test]
    fn ordered_relays_send_only_while_holding_the_lease() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        assert!(Lease::initial(false).may_claim(now));
        assert!(!Lease::initial(true).may_send(now));
        let mut held = Lease::Held {
            until: now + second,
            worker: 1,
            quarantined: false,
        };
        assert!(held.may_claim(now) && held.left(now) == second);
        assert!(!held.may_send(now + second) && !held.may_claim(now + second));
        held.end(now);
        assert!(!held.may_send(now) && !held.may_claim(now));
    }

    #[test]
    fn buffered_jobs_are_dropped_only_when_another_relay_holds_the_lease() {
        let until = Instant::now();
        let held = Lease::Held {
            until,
            worker: 1,
            quarantined: false,
        };
        assert!(!held.may_send(until) && !held.has_lost(1));
        assert!(held.has_lost(2) && Lease::Missing.has_lost(1));
        assert!(!Lease::NotRequired.has_lost(1));
    }

    #[test]
    fn only_the_same_worker_renews_a_lease() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let held = |until, worker| Lease::Held {
            until,
            worker,
            quarantined: false,
        };
        let before = held(now, 1);
        assert!(held(now + second, 1).renews(before, now));
        assert!(!before.renews(before, now) && !Lease::Missing.renews(before, now));
        assert!(!held(now + second, 2).renews(before, now));
    }

    #[test]
    fn quarantined_jobs_come_before_waiting_ones() {
        let now = Instant::now();
        let held = Lease::Held {
            until: now + Duration::from_secs(1),
            worker: 1,
            quarantined: true,
        };
        assert!(held.may_send(now) && !held.may_claim(now));
    }
}
