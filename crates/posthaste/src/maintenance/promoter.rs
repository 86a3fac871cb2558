//! The promoter: when scheduled jobs and the ordering keys are polled. It sleeps until the next
//! job is due; a transaction that schedules one, enqueues one with an ordering key or ends a turn
//! notifies it.

use std::time::{Duration, Instant};

use super::{Maintenance, attempt};
use crate::parts::sleep::DOUBT;

/// Jobs promoted in one transaction: claims never wait for more than this.
const PROMOTE: i32 = 5_000;
/// Jobs with ordering keys that are given turns in one transaction.
const ORDERED: i32 = 1_000;
/// After a job with an ordering key came or ended, they are polled this often for a second.
const ORDERING_POLL_INTERVAL: Duration = Duration::from_millis(2);
const ORDERING_POLL_FOR: Duration = Duration::from_secs(1);
/// The longest sleep: how late a job may be that notified nobody.
const LONGEST: Duration = Duration::from_secs(1);
/// The lookahead for due jobs. It exceeds the longest sleep, so that a poll knows whether a job
/// that it finds was expected.
const AHEAD: Duration = Duration::from_secs(2);
/// What is due this much before it was expected should have notified the leader.
const SURPRISE: Duration = Duration::from_millis(50);
/// Asking for the next job that is due may walk rows of an open or rolled-back transaction. When it
/// takes longer than this, it is left for a while.
const SLOW: Duration = Duration::from_millis(20);

pub(super) struct Promoter {
    looked_at: Instant,
    look_at: Instant,
    found_at: Instant,
    turned_at: Option<Instant>,
    was_woken: bool,
    /// When the next job was to be due, at the earliest.
    due_at: Instant,
    /// When a job was found last without a notification.
    missed_at: Option<Instant>,
    /// Until then the next due time is not queried: a poll at each interval costs less.
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

    /// Completes when somebody scheduled a job.
    pub(super) async fn woken(&mut self, leader: &Maintenance) {
        leader.notifications.promoter.woken.notified().await;
        self.was_woken = true;
        let soon = self.looked_at + leader.config.promote_interval;
        self.look_at = soon.min(self.look_at);
    }

    /// Promotes if it is time to; how long nothing is to be done.
    pub(super) async fn turn(&mut self, leader: &Maintenance) -> Duration {
        if Instant::now() >= self.look_at {
            self.looked_at = Instant::now();
            let pause = self.page(leader).await;
            self.look_at = Instant::now() + pause;
            self.advance_ordering(leader).await;
            self.was_woken = false;
        } else if self.is_turning() {
            self.advance_ordering(leader).await;
        }
        let pause = self.look_at.saturating_duration_since(Instant::now());
        if self.is_turning() {
            pause.min(ORDERING_POLL_INTERVAL)
        } else {
            pause
        }
    }

    async fn advance_ordering(&mut self, leader: &Maintenance) {
        if attempt!(&leader.link, advance_ordering(ORDERED)).is_some_and(|jobs| jobs > 0) {
            let expected = self.is_turning() || self.found_at.elapsed() < ORDERING_POLL_FOR;
            self.should_have_been_notified(leader, expected);
            self.turned_at = Some(Instant::now());
        }
    }

    /// Something was found, by a poll or a notification.
    fn should_have_been_notified(&mut self, leader: &Maintenance, was_expected: bool) {
        if leader.notifications.promoter.is_on() && !self.was_woken && !was_expected {
            self.missed_at = Some(Instant::now());
        }
    }

    fn is_turning(&self) -> bool {
        self.turned_at
            .is_some_and(|at| at.elapsed() < ORDERING_POLL_FOR)
    }

    /// Promotes what is due, a page of it, and returns how long to pause.
    async fn page(&mut self, leader: &Maintenance) -> Duration {
        let link = &leader.link;
        let shortest = leader.config.promote_interval;
        let asked = Instant::now();
        let ahead = if asked < self.blind_until {
            Duration::ZERO
        } else {
            AHEAD
        };
        let due = attempt!(
            link,
            publish_horizon(i64::try_from(ahead.as_millis()).unwrap_or(0))
        );
        let took = asked.elapsed();
        if took > SLOW {
            self.blind_until = asked + took * 50;
        }
        let due = match due {
            Some(Some(milliseconds)) => Duration::from_millis(milliseconds.unsigned_abs()),
            Some(None) => AHEAD,
            None => Duration::ZERO,
        };
        // What is due may be of a transaction that ended late.
        let promoted = attempt!(link, promote(PROMOTE, false)).unwrap_or(0);
        // While there is an old segment, something may always be due.
        let carried = if due.is_zero() {
            attempt!(link, promote(PROMOTE, true)).unwrap_or(0)
        } else {
            0
        };
        if promoted > 0 {
            self.should_have_been_notified(leader, asked + SURPRISE >= self.due_at);
        }
        if promoted.max(carried) > 0 {
            self.found_at = Instant::now();
        }
        self.due_at = asked + due.min(ahead);
        if promoted.max(carried) >= i64::from(PROMOTE) {
            return Duration::from_millis(1);
        }
        let sleeper = &leader.notifications.promoter;
        let idle = self.found_at.elapsed();
        let sleep = leader.notifications.pause(sleeper, idle, LONGEST);
        let doubted = self.missed_at.is_some_and(|at| at.elapsed() < DOUBT);
        if !sleeper.is_on() || ahead.is_zero() || doubted {
            return shortest;
        }
        // An eighth of the time since notifications are on, in which a transaction that did not see
        // them on may have committed.
        let sleep = sleep.unwrap_or(LONGEST);
        sleep.min(due).max(shortest)
    }
}
