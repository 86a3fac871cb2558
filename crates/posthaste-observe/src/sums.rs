//! Sums of counters.

use posthaste::{Counter, State};

/// Sums of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Due, and waiting for a worker.
    pub available: i64,
    /// Waiting for a job of their ordering key.
    pub blocked: i64,
    /// Not due yet.
    pub scheduled: i64,
    /// Not due yet, after a failed attempt.
    pub retrying: i64,
    /// With a worker.
    pub running: i64,
    /// Waiting to be confirmed.
    pub awaiting: i64,
    /// To be run alone, because their worker died.
    pub quarantined: i64,
    /// Out of attempts.
    pub dead: i64,
    /// Given up by their handler.
    pub discarded: i64,
    /// Expired.
    pub expired: i64,
    /// Cancelled.
    pub cancelled: i64,
    /// Completed since the installation.
    pub done: i64,
    /// Failed attempts since the installation.
    pub failed: i64,
    /// Given up since the installation.
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

    /// How many jobs are in a state; completed ones are not counted.
    pub fn of(&self, state: State) -> i64 {
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

    /// Jobs that will still be worked on.
    pub fn pending(&self) -> i64 {
        self.waiting() + self.scheduled + self.retrying + self.running + self.awaiting
    }

    /// Jobs that are due and not running.
    pub fn waiting(&self) -> i64 {
        self.available + self.blocked + self.quarantined
    }

    /// Jobs that are due, running, or tried again after a failure.
    pub fn due(&self) -> i64 {
        self.waiting() + self.running + self.retrying
    }

    /// Jobs that were enqueued since the installation.
    pub fn enqueued(&self) -> i64 {
        self.pending() + self.done + self.given_up
    }
}
