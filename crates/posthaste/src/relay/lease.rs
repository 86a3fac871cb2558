//! Who may send: in drain mode one relay of a queue at a time, over all processes. Pure, the clock is read elsewhere.
//!
//! The lease is a row of `posthaste.drain`, by the server's clock. Here it ends so long after it was asked for, by the clock of this process, which is before the
//! server lets it end: whoever was stopped for a while finds its lease over before it sends another byte. Clocks that run at different speeds can
//! cost an overlap of that difference at most.

use std::time::{Duration, Instant};

use super::Mode;

/// The right of a relay to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lease {
    /// Any number of relays may.
    Needless,
    /// Another one does, or nobody knows.
    Missing,
    /// It is this one's turn.
    Held {
        /// Until when.
        until: Instant,
        /// Jobs of the one before it, which died: they come first.
        suspects: bool,
    },
}

impl Lease {
    /// Before the database was asked.
    pub(super) fn before(mode: Mode) -> Self {
        match mode {
            Mode::Outbox => Self::Needless,
            Mode::Drain => Self::Missing,
        }
    }

    pub(super) fn may_send(self, now: Instant) -> bool {
        !self.left(now).is_zero()
    }

    pub(super) fn may_claim(self, now: Instant) -> bool {
        self.may_send(now) && !self.waits_for_suspects()
    }

    pub(super) fn waits_for_suspects(self) -> bool {
        matches!(self, Self::Held { suspects: true, .. })
    }

    /// How long sending may take.
    pub(super) fn left(self, now: Instant) -> Duration {
        match self {
            Self::Needless => Duration::MAX,
            Self::Missing => Duration::ZERO,
            Self::Held { until, .. } => until.saturating_duration_since(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Lease;
    use crate::relay::Mode;

    #[test]
    fn a_drain_sends_only_while_its_lease_lasts() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        assert!(Lease::before(Mode::Outbox).may_claim(now));
        assert!(!Lease::before(Mode::Drain).may_send(now));
        let held = Lease::Held {
            until: now + second,
            suspects: false,
        };
        assert!(held.may_claim(now) && held.left(now) == second);
        assert!(!held.may_send(now + second) && !held.may_claim(now + second));
    }

    #[test]
    fn suspects_come_before_what_waits() {
        let now = Instant::now();
        let held = Lease::Held {
            until: now + Duration::from_secs(1),
            suspects: true,
        };
        assert!(held.may_send(now) && !held.may_claim(now));
    }
}
