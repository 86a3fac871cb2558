//! Permission to send: one ordered relay of a queue at a time, over all processes. Pure: callers
//! read the clock.
//!
//! The lease is a row of `posthaste.ordered_relay` that expires by the server's clock. Here its
//! duration counts by the clock of this process from before the request, so it expires here before
//! it does on the server: a process that was suspended finds its lease expired before it sends
//! another byte. Clocks that run at different speeds can cause an overlap of at most that
//! difference.

use std::time::{Duration, Instant};

/// The right of a relay to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lease {
    /// Any number of relays may send.
    NotRequired,
    /// Held by another relay, or the holder is unknown.
    Missing,
    /// Held by this relay. After it expires, buffered jobs wait here until it is renewed or another
    /// relay takes it.
    Held {
        /// The time at which it expires.
        until: Instant,
        /// The worker that holds it: jobs that another worker claimed must not be sent.
        worker: i64,
        /// Jobs of the previous holder, which died, remain: they come first.
        quarantined: bool,
    },
}

impl Lease {
    /// Returns the lease before the first request.
    pub(crate) fn initial(ordered: bool) -> Self {
        match ordered {
            false => Self::NotRequired,
            true => Self::Missing,
        }
    }

    pub(crate) fn may_send(self, now: Instant) -> bool {
        !self.time_left(now).is_zero()
    }

    pub(crate) fn may_claim(self, now: Instant) -> bool {
        self.may_send(now) && !self.waits_for_quarantined()
    }

    /// Returns whether jobs that this worker claimed now belong to another relay.
    pub(crate) fn has_lost(self, claimed_as: i64) -> bool {
        match self {
            Self::NotRequired => false,
            Self::Missing => true,
            Self::Held { worker, .. } => worker != claimed_as,
        }
    }

    /// Expires it at once, because the holder is unknown.
    pub(crate) fn expire(&mut self, now: Instant) {
        if let Self::Held { until, .. } = self {
            *until = now.min(*until);
        }
    }

    /// Returns whether this relay's lease has expired, with no known successor.
    pub(crate) fn is_expired(self, now: Instant) -> bool {
        matches!(self, Self::Held { until, .. } if until <= now)
    }

    /// Returns whether it is a valid renewal of the lease `before`.
    pub(crate) fn is_renewal_of(self, before: Self, now: Instant) -> bool {
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

    /// Returns how long sending may take.
    pub(crate) fn time_left(self, now: Instant) -> Duration {
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
        assert!(held.may_claim(now) && held.time_left(now) == second);
        assert!(!held.may_send(now + second) && !held.may_claim(now + second));
        held.expire(now);
        assert!(!held.may_send(now) && !held.may_claim(now));
    }

    #[test]
    fn a_lease_is_lost_to_another_worker_and_not_by_expiring() {
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
        assert!(held(now + second, 1).is_renewal_of(before, now));
        assert!(!before.is_renewal_of(before, now) && !Lease::Missing.is_renewal_of(before, now));
        assert!(!held(now + second, 2).is_renewal_of(before, now));
    }

    #[test]
    fn quarantined_jobs_pause_claims_but_not_sending() {
        let now = Instant::now();
        let held = Lease::Held {
            until: now + Duration::from_secs(1),
            worker: 1,
            quarantined: true,
        };
        assert!(held.may_send(now) && !held.may_claim(now));
    }
}
