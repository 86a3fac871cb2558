//! Decides when a task that found nothing polls again. Pure: the caller passes the time.
//!
//! Transactions that read posthaste.flags before the notifications of a task were on do not notify
//! it. Polling after an eighth of the time since then finds the jobs of one that commits late. A
//! queue without notifications is polled after an eighth of its idle time.

use std::time::{Duration, Instant};

/// The first pause after work was found.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Notifications are requested for a queue that has been idle for this long.
const NOTIFY_AFTER_IDLE: Duration = Duration::from_millis(1);
/// Notifications that were turned off are turned on again after this delay, which doubles each time
/// that they are turned off again soon.
const FIRST_OFF_TIME: Duration = Duration::from_millis(100);
/// The longest time that notifications stay off.
const MAX_OFF_TIME: Duration = Duration::from_secs(2);
/// Transactions that notify commit one at a time. Notifications of a queue are turned off when
/// their commits take about half of the time, but not below the first number of them within
/// [`COUNTING_PERIOD`], and always above the second.
const NOTIFICATION_LIMITS: (u32, u32) = (20, 100);
const COUNTING_PERIOD: Duration = Duration::from_millis(100);

/// After a poll found work without a notification, polling continues as without a notifier for this
/// long: some sessions may not notify, or the connection may be dead.
pub(crate) const DISTRUST_TIME: Duration = Duration::from_secs(60);

/// Returns the pause after an empty poll, `idle` after work was last found: an eighth of that, so
/// that the polling rate follows the rate of jobs.
pub(crate) fn pause(idle: Duration, longest: Duration) -> Duration {
    (idle / 8).clamp(FIRST_PAUSE, longest.max(FIRST_PAUSE))
}

/// Returns how many notifications of a queue within [`COUNTING_PERIOD`] are tolerated if a commit
/// takes this long; `None`: that is not known yet.
pub(crate) fn max_notifications(commit_time: Option<Duration>) -> u32 {
    let (least, most) = NOTIFICATION_LIMITS;
    let half = |time: Duration| (COUNTING_PERIOD / 2).as_micros() / time.as_micros().max(1);
    commit_time.map_or(least, |time| {
        u32::try_from(half(time)).map_or(most, |limit| limit.clamp(least, most))
    })
}

/// The state of the notifications of one task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PollPause {
    /// Since when enqueues notify, as far as this worker knows.
    on_since: Option<Instant>,
    off_until: Option<Instant>,
    off_for: Duration,
    /// Notifications are to be turned on.
    wanted: bool,
}

impl PollPause {
    /// Returns the pause after an empty poll; `None`: until a notification comes or the watch finds
    /// something.
    pub(crate) fn pause(
        &mut self,
        now: Instant,
        idle: Duration,
        longest: Duration,
        has_notifier: bool,
    ) -> Option<Duration> {
        if let Some(since) = self.on_since {
            return Some(pause(now - since, longest)).filter(|pause| *pause < longest);
        }
        let pause = pause(idle, longest);
        if !has_notifier {
            return Some(pause).filter(|pause| *pause < longest);
        }
        let off = self
            .off_until
            .map(|until| until.saturating_duration_since(now));
        match off.filter(|left| !left.is_zero()) {
            Some(left) => Some(pause.min(left)),
            None => {
                self.wanted |= idle >= NOTIFY_AFTER_IDLE;
                Some(pause)
            }
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on_since.is_some()
    }

    /// Records that notifications are on.
    pub(crate) fn turn_on(&mut self, now: Instant) {
        self.wanted = false;
        self.on_since.get_or_insert(now);
    }

    /// Records that a worker turned notifications off.
    pub(crate) fn turn_off(&mut self, now: Instant) {
        let Some(since) = self.on_since.take() else {
            return;
        };
        self.off_for = if now - since > MAX_OFF_TIME {
            FIRST_OFF_TIME
        } else {
            (self.off_for * 2).clamp(FIRST_OFF_TIME, MAX_OFF_TIME)
        };
        self.off_until = Some(now + self.off_for);
    }

    /// Records that notifications stay off for [`MAX_OFF_TIME`].
    pub(crate) fn give_up(&mut self, now: Instant) {
        *self = Self {
            off_for: MAX_OFF_TIME,
            off_until: Some(now + MAX_OFF_TIME),
            ..Self::default()
        };
    }

    /// Resets the state: notifications no longer arrive.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Counts the notifications of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotifyCount {
    since: Instant,
    count: u32,
}

impl NotifyCount {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            count: 0,
        }
    }

    /// Counts a notification; returns whether there are too many.
    pub(crate) fn count_is_above(&mut self, limit: u32, now: Instant) -> bool {
        if now - self.since > COUNTING_PERIOD {
            *self = Self::new(now);
        }
        self.count += 1;
        self.count > limit
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now - self.since > COUNTING_PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_OFF_TIME, MAX_OFF_TIME, NotifyCount, PollPause, max_notifications, pause};
    use std::time::{Duration, Instant};

    const LONGEST: Duration = Duration::from_millis(100);
    const HOUR: Duration = Duration::from_secs(3600);

    fn milliseconds(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn poll_pause_grows_with_idle_time_within_bounds() {
        assert_eq!(pause(Duration::ZERO, LONGEST), milliseconds(1));
        assert_eq!(pause(milliseconds(40), LONGEST), milliseconds(5));
        assert_eq!(pause(HOUR, LONGEST), LONGEST);
    }

    #[test]
    fn long_idle_queues_without_a_notifier_leave_polling_to_the_watch() {
        let (mut sleep, now) = (PollPause::default(), Instant::now());
        let short = sleep.pause(now, milliseconds(80), LONGEST, false);
        assert_eq!(short, Some(milliseconds(10)));
        assert_eq!(sleep.pause(now, HOUR, LONGEST, false), None);
        assert!(!sleep.is_wanted());
    }

    #[test]
    fn the_polling_pause_grows_while_notifications_are_on() {
        let (mut sleep, on_since) = (PollPause::default(), Instant::now());
        assert_eq!(sleep.pause(on_since, HOUR, LONGEST, true), Some(LONGEST));
        assert!(sleep.is_wanted());
        sleep.turn_on(on_since);
        assert!(!sleep.is_wanted());
        // However long it was idle: a transaction that began before they were on may commit now.
        let first = sleep.pause(on_since, HOUR, LONGEST, true);
        assert_eq!(first, Some(milliseconds(1)));
        // However busy it was: each transaction that commits now notifies.
        let later = on_since + milliseconds(800);
        assert_eq!(sleep.pause(later, Duration::ZERO, LONGEST, true), None);
    }

    #[test]
    fn queues_with_notifications_off_are_polled() {
        let (mut sleep, now) = (PollPause::default(), Instant::now());
        sleep.turn_on(now);
        sleep.turn_off(now);
        let soon = sleep.pause(now, HOUR, HOUR, true);
        assert_eq!((soon, sleep.is_wanted()), (Some(FIRST_OFF_TIME), false));
        sleep.pause(now + FIRST_OFF_TIME, HOUR, HOUR, true);
        assert!(sleep.is_wanted());
    }

    #[test]
    fn notification_pauses_grow_when_they_recur_quickly() {
        let (mut sleep, mut now) = (PollPause::default(), Instant::now());
        for expected in [100, 200, 400, 800, 1600, 2000, 2000].map(milliseconds) {
            sleep.turn_on(now);
            sleep.turn_off(now);
            assert_eq!(sleep.off_for, expected);
            now += expected;
        }
        sleep.turn_on(now);
        sleep.turn_off(now + MAX_OFF_TIME + milliseconds(1));
        assert_eq!(sleep.off_for, FIRST_OFF_TIME);
    }

    #[test]
    fn quick_commits_tolerate_more_notifications() {
        let tolerated = |micros| max_notifications(Some(Duration::from_micros(micros)));
        assert_eq!(
            [0, 400, 500, 1_000, 2_000, 5_000, 500_000].map(tolerated),
            [100, 100, 100, 50, 25, 20, 20]
        );
        assert_eq!(max_notifications(None), 20);
    }

    #[test]
    fn frequent_notifications_are_turned_off_and_rare_ones_stay_on() {
        let mut now = Instant::now();
        let mut notifications = NotifyCount::new(now);
        for _ in 0..1000 {
            now += milliseconds(10);
            assert!(!notifications.count_is_above(20, now));
        }
        let noticed = (0..100).position(|_| {
            now += milliseconds(1);
            notifications.count_is_above(20, now)
        });
        assert!(
            noticed.is_some_and(|notifications| notifications < 40),
            "{noticed:?}"
        );
        assert!(notifications.is_over(now + milliseconds(200)));
    }
}
