//! Sums of counters.

use posthaste::{Counter, State};

/// Sums of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Due jobs that wait for a worker.
    pub available: i64,
    /// Due jobs that wait for another job of their ordering key.
    pub blocked: i64,
    /// Jobs that are not due yet.
    pub scheduled: i64,
    /// Jobs that will be retried after a failed attempt.
    pub retrying: i64,
    /// Jobs that a worker runs.
    pub running: i64,
    /// Jobs that wait for a confirmation.
    pub awaiting: i64,
    /// Jobs that will run alone because their worker died.
    pub quarantined: i64,
    /// Jobs that used up their attempts.
    pub dead: i64,
    /// Jobs that their handler discarded.
    pub discarded: i64,
    /// Jobs that expired.
    pub expired: i64,
    /// Jobs that were cancelled.
    pub cancelled: i64,
    /// Jobs completed since the installation.
    pub done: i64,
    /// Failed attempts since the installation.
    pub failed: i64,
    /// Jobs that died, were discarded, expired or were cancelled since the installation.
    pub given_up: i64,
}

impl Sums {
    pub(crate) fn add(&mut self, of: &Counter) {
        self.available += of.available;
        self.blocked += of.blocked;
        self.scheduled += of.scheduled;
        self.retrying += of.retrying;
        self.running += of.running;
        self.awaiting += of.awaiting;
        self.quarantined += of.quarantined;
        self.dead += of.dead;
        self.discarded += of.discarded;
        self.expired += of.expired;
        self.cancelled += of.cancelled;
        self.done += of.completed_total;
        self.failed += of.failed_total;
        self.given_up += of.dead_total + of.discarded_total + of.expired_total + of.cancelled_total;
    }

    /// Returns how many jobs are in a state; 0 for completed ones, which are not counted.
    pub fn in_state(&self, state: State) -> i64 {
        match state {
            State::Scheduled => self.scheduled,
            State::Available => self.available,
            State::Blocked => self.blocked,
            State::Running => self.running,
            State::Retrying => self.retrying,
            State::Awaiting => self.awaiting,
            State::Quarantined => self.quarantined,
            State::Dead => self.dead,
            State::Discarded => self.discarded,
            State::Expired => self.expired,
            State::Cancelled => self.cancelled,
            State::Completed => 0,
        }
    }

    /// Returns the unfinished jobs.
    pub fn pending(&self) -> i64 {
        self.waiting() + self.scheduled + self.retrying + self.running + self.awaiting
    }

    /// Returns the jobs that are due and not running.
    pub fn waiting(&self) -> i64 {
        self.available + self.blocked + self.quarantined
    }

    /// Returns the jobs that are due, running, or retried after a failure.
    pub fn due(&self) -> i64 {
        self.waiting() + self.running + self.retrying
    }

    /// Returns the jobs enqueued since the installation.
    pub fn enqueued(&self) -> i64 {
        self.pending() + self.done + self.given_up
    }
}
