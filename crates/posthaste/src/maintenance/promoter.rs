//! The promoter: polls scheduled jobs and ordering keys. It sleeps until the next job is due. A
//! transaction that schedules a job, enqueues one with an ordering key or ends a turn notifies it.

use std::time::{Duration, Instant};

use super::{Maintenance, attempt};
use crate::parts::poll_pause::DISTRUST_TIME;

/// Jobs promoted in one transaction, which bounds how long claims wait for it.
const PROMOTE_BATCH: i32 = 5_000;
/// Jobs with ordering keys that are made available in one transaction.
const ORDERED_BATCH: i32 = 1_000;
/// Ordering keys are polled this often, and for this long after the last job with one came or
/// ended.
const ORDERING_POLL_INTERVAL: Duration = Duration::from_millis(2);
const ORDERING_POLL_FOR: Duration = Duration::from_secs(1);
/// The longest sleep: the longest delay of a job that was enqueued without a notification.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// The lookahead for due jobs. It exceeds the longest sleep, so that a poll knows whether a job
/// that it finds was expected.
const LOOKAHEAD: Duration = Duration::from_secs(2);
/// A job that is due this much earlier than expected should have notified the leader.
const MAX_UNEXPECTED_LEAD: Duration = Duration::from_millis(50);
/// The query for the next due time may scan rows of an open or rolled-back transaction. If it takes
/// longer than this, it is suspended for a while.
const SLOW_QUERY: Duration = Duration::from_millis(20);

pub(super) struct Promoter {
    looked_at: Instant,
    look_at: Instant,
    found_at: Instant,
    turned_at: Option<Instant>,
    was_woken: bool,
    /// The earliest time at which the next job was expected to be due.
    due_at: Instant,
    /// When a job was last found without a notification.
    missed_at: Option<Instant>,
    /// The next due time is not queried until then: polling at each interval costs less.
    blind_until: Instant,
}

impl Promoter {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            looked_at: now,
            look_at: now,
            found_at: now,
            turned_at: None,
            was_woken: false,
            due_at: now,
            missed_at: None,
            blind_until: now,
        }
    }

    /// Completes when a job was scheduled.
    pub(super) async fn wait_for_scheduled(&mut self, leader: &Maintenance) {
        leader.notifications.promoter.woken.notified().await;
        self.was_woken = true;
        let soon = self.looked_at + leader.config.promote_interval;
        self.look_at = soon.min(self.look_at);
    }

    /// Promotes if it is time to. Returns the pause until the next turn.
    pub(super) async fn promote_if_due(&mut self, leader: &Maintenance) -> Duration {
        if Instant::now() >= self.look_at {
            self.looked_at = Instant::now();
            let pause = self.promote_page(leader).await;
            self.look_at = Instant::now() + pause;
            self.advance_ordering(leader).await;
            self.was_woken = false;
        } else if self.is_polling_ordering() {
            self.advance_ordering(leader).await;
        }
        let pause = self.look_at.saturating_duration_since(Instant::now());
        if self.is_polling_ordering() {
            pause.min(ORDERING_POLL_INTERVAL)
        } else {
            pause
        }
    }

    async fn advance_ordering(&mut self, leader: &Maintenance) {
        if attempt!(&leader.link, advance_ordering(ORDERED_BATCH)).is_some_and(|jobs| jobs > 0) {
            let expected =
                self.is_polling_ordering() || self.found_at.elapsed() < ORDERING_POLL_FOR;
            self.record_unnotified(leader, expected);
            self.turned_at = Some(Instant::now());
        }
    }

    /// Records whether a job was found by a poll although a notification should have announced it.
    fn record_unnotified(&mut self, leader: &Maintenance, was_expected: bool) {
        if leader.notifications.promoter.is_on() && !self.was_woken && !was_expected {
            self.missed_at = Some(Instant::now());
        }
    }

    fn is_polling_ordering(&self) -> bool {
        self.turned_at
            .is_some_and(|at| at.elapsed() < ORDERING_POLL_FOR)
    }

    /// Promotes one page of due jobs and returns how long to pause.
    async fn promote_page(&mut self, leader: &Maintenance) -> Duration {
        let link = &leader.link;
        let shortest = leader.config.promote_interval;
        let asked = Instant::now();
        let ahead = if asked < self.blind_until {
            Duration::ZERO
        } else {
            LOOKAHEAD
        };
        let due = attempt!(
            link,
            publish_horizon(i64::try_from(ahead.as_millis()).unwrap_or(0))
        );
        let took = asked.elapsed();
        if took > SLOW_QUERY {
            self.blind_until = asked + took * 50;
        }
        let due = match due {
            Some(Some(milliseconds)) => Duration::from_millis(milliseconds.unsigned_abs()),
            Some(None) => LOOKAHEAD,
            None => Duration::ZERO,
        };
        // Promotes even if no job is due: a transaction that committed late may have left due jobs.
        let promoted = attempt!(link, promote(PROMOTE_BATCH, false)).unwrap_or(0);
        // The old segment may always have due jobs.
        let carried = if due.is_zero() {
            attempt!(link, promote(PROMOTE_BATCH, true)).unwrap_or(0)
        } else {
            0
        };
        if promoted > 0 {
            self.record_unnotified(leader, asked + MAX_UNEXPECTED_LEAD >= self.due_at);
        }
        if promoted.max(carried) > 0 {
            self.found_at = Instant::now();
        }
        self.due_at = asked + due.min(ahead);
        if promoted.max(carried) >= i64::from(PROMOTE_BATCH) {
            return Duration::from_millis(1);
        }
        let sleeper = &leader.notifications.promoter;
        let idle = self.found_at.elapsed();
        let sleep = leader.notifications.pause(sleeper, idle, MAX_SLEEP);
        let doubted = self
            .missed_at
            .is_some_and(|at| at.elapsed() < DISTRUST_TIME);
        if !sleeper.is_on() || ahead.is_zero() || doubted {
            return shortest;
        }
        // A transaction that began before notifications were on does not notify. It is found by
        // polling after an eighth of the time since they are on.
        let sleep = sleep.unwrap_or(MAX_SLEEP);
        sleep.min(due).max(shortest)
    }
}
