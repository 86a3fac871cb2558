//! When somebody who found nothing looks again: pure decisions, the clock is read elsewhere.
//!
//! Who sleeps is rung for, except by transactions that had looked at the bell before it was armed. One of those that was open for so long is met by
//! looking after an eighth of that time; likewise a queue without a bell is met at the pace of its own trickle.

use std::time::{Duration, Instant};

/// The first pause after work was found.
pub(crate) const SHORTEST: Duration = Duration::from_millis(1);
/// A queue that has been idle for this long wants to be rung for.
const DROWSY: Duration = Duration::from_millis(5);
/// A bell that was put to rest is armed again after this, and after twice as long each time that it has to rest again soon.
const REST: Duration = Duration::from_millis(100);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// Rings of one queue in [`COUNTED`] beyond which its bell is put to rest: each of them lets one commit go at a time.
const MANY: u32 = 20;
const COUNTED: Duration = Duration::from_millis(100);

/// How long to pause after an empty look, `idle` after the last find: an eighth of it, so that a steady trickle is met at its own pace.
pub(crate) fn pause(idle: Duration, longest: Duration) -> Duration {
    (idle / 8).clamp(SHORTEST, longest.max(SHORTEST))
}

/// What is known of one bell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sleep {
    /// Since when whoever enqueues rings, as far as we were told.
    armed: Option<Instant>,
    rests_until: Option<Instant>,
    rest: Duration,
    /// To be armed.
    wanted: bool,
}

impl Sleep {
    /// How long to pause after an empty look; `None`: until the bell rings, or the watch over all that sleep finds something.
    pub(crate) fn pause(
        &mut self,
        now: Instant,
        idle: Duration,
        longest: Duration,
        has_bell: bool,
    ) -> Option<Duration> {
        if let Some(since) = self.armed {
            return Some(pause(now - since, longest)).filter(|pause| *pause < longest);
        }
        let pause = pause(idle, longest);
        if !has_bell {
            return Some(pause).filter(|pause| *pause < longest);
        }
        let rests = self
            .rests_until
            .map(|until| until.saturating_duration_since(now));
        match rests.filter(|left| !left.is_zero()) {
            Some(left) => Some(pause.min(left)),
            None => {
                self.wanted |= idle >= DROWSY;
                Some(pause)
            }
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// It rings from now on.
    pub(crate) fn arm(&mut self, now: Instant) {
        self.wanted = false;
        self.armed.get_or_insert(now);
    }

    /// Somebody put it to rest.
    pub(crate) fn put_to_rest(&mut self, now: Instant) {
        let Some(since) = self.armed.take() else {
            return;
        };
        self.rest = if now - since > LONGEST_REST {
            REST
        } else {
            (self.rest * 2).clamp(REST, LONGEST_REST)
        };
        self.rests_until = Some(now + self.rest);
    }

    /// Nobody can be heard any more.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Counts the rings of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    since: Instant,
    count: u32,
}

impl Rings {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            count: 0,
        }
    }

    /// One more; whether those are too many.
    pub(crate) fn are_too_many(&mut self, now: Instant) -> bool {
        if now - self.since > COUNTED {
            *self = Self::new(now);
        }
        self.count += 1;
        self.count > MANY
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now - self.since > COUNTED
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_REST, REST, Rings, Sleep, pause};
    use std::time::{Duration, Instant};

    const LONGEST: Duration = Duration::from_millis(100);
    const HOUR: Duration = Duration::from_secs(3600);

    fn milliseconds(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_pause_follows_idleness_between_its_bounds() {
        assert_eq!(pause(Duration::ZERO, LONGEST), milliseconds(1));
        assert_eq!(pause(milliseconds(40), LONGEST), milliseconds(5));
        assert_eq!(pause(HOUR, LONGEST), LONGEST);
    }

    #[test]
    fn without_a_bell_an_idle_queue_is_left_to_the_watch() {
        let (mut sleep, now) = (Sleep::default(), Instant::now());
        let short = sleep.pause(now, milliseconds(80), LONGEST, false);
        assert_eq!(short, Some(milliseconds(10)));
        assert_eq!(sleep.pause(now, HOUR, LONGEST, false), None);
        assert!(!sleep.is_wanted());
    }

    #[test]
    fn the_pause_behind_a_bell_follows_the_time_since_it_was_armed() {
        let (mut sleep, armed) = (Sleep::default(), Instant::now());
        assert_eq!(sleep.pause(armed, HOUR, LONGEST, true), Some(LONGEST));
        assert!(sleep.is_wanted());
        sleep.arm(armed);
        assert!(!sleep.is_wanted());
        // However idle: a transaction that did not see it armed may commit now.
        let first = sleep.pause(armed, HOUR, LONGEST, true);
        assert_eq!(first, Some(milliseconds(1)));
        // However busy: everybody who commits now has seen it.
        let later = armed + milliseconds(800);
        assert_eq!(sleep.pause(later, Duration::ZERO, LONGEST, true), None);
    }

    #[test]
    fn a_bell_that_rests_is_not_wanted_and_its_queue_not_left_alone() {
        let (mut sleep, now) = (Sleep::default(), Instant::now());
        sleep.arm(now);
        sleep.put_to_rest(now);
        let soon = sleep.pause(now, HOUR, HOUR, true);
        assert_eq!((soon, sleep.is_wanted()), (Some(REST), false));
        sleep.pause(now + REST, HOUR, HOUR, true);
        assert!(sleep.is_wanted());
    }

    #[test]
    fn rests_grow_while_each_comes_soon_after_the_last() {
        let (mut sleep, mut now) = (Sleep::default(), Instant::now());
        for expected in [100, 200, 400, 800, 1600, 2000, 2000].map(milliseconds) {
            sleep.arm(now);
            sleep.put_to_rest(now);
            assert_eq!(sleep.rest, expected);
            now += expected;
        }
        sleep.arm(now);
        sleep.put_to_rest(now + LONGEST_REST + milliseconds(1));
        assert_eq!(sleep.rest, REST);
    }

    #[test]
    fn a_trickle_of_rings_is_borne_and_a_stream_is_not() {
        let mut now = Instant::now();
        let mut rings = Rings::new(now);
        for _ in 0..1000 {
            now += milliseconds(10);
            assert!(!rings.are_too_many(now));
        }
        let noticed = (0..100).position(|_| {
            now += milliseconds(1);
            rings.are_too_many(now)
        });
        assert!(noticed.is_some_and(|rings| rings < 40), "{noticed:?}");
        assert!(rings.is_over(now + milliseconds(200)));
    }
}
