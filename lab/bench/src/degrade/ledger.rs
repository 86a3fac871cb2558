//! The state of each job, as recorded by producers and workers. The queue is never queried for it,
//! because that would disturb algorithms that suffer from reads.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;

/// The records of producers and workers.
#[derive(Debug)]
pub(crate) struct Ledger {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    open: BTreeMap<u64, Job>,
    totals: Totals,
    window: Window,
}

/// A job that is not known to be both committed and finished.
#[derive(Debug, Default)]
struct Job {
    committed_at: Option<u64>,
    finished: bool,
}

/// Totals since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) committed: u64,
    pub(crate) started: u64,
    pub(crate) finished: u64,
    /// Jobs that were finished although they were finished before, or never committed.
    pub(crate) surplus: u64,
}

impl Totals {
    /// The number of jobs that are committed and not finished.
    pub(crate) fn waiting(self) -> u64 {
        self.committed.saturating_sub(self.finished)
    }
}

/// Records since the last sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Window {
    /// The duration of each claim that found jobs, in milliseconds.
    pub(crate) claims: Vec<f64>,
    /// The times from commit to start, in milliseconds.
    pub(crate) starts: Vec<f64>,
    /// The greatest delay of a producer, in seconds.
    pub(crate) late: f64,
}

impl Ledger {
    /// Creates an empty ledger.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            inner: Mutex::default(),
        }
    }

    /// Allocates numbers for jobs that a transaction is about to insert.
    pub(crate) fn offer(&self, jobs: u32) -> std::ops::Range<u64> {
        let mut inner = self.lock();
        let numbers = inner.next..inner.next + u64::from(jobs);
        inner.next = numbers.end;
        for number in numbers.clone() {
            inner.open.insert(number, Job::default());
        }
        numbers
    }

    /// Records the commit of these jobs; a worker may already have finished them.
    pub(crate) fn committed(&self, numbers: std::ops::Range<u64>) {
        let now = self.clock.now();
        let mut inner = self.lock();
        for number in numbers {
            inner.totals.committed += 1;
            match inner.open.get_mut(&number) {
                Some(job) if job.finished => drop(inner.open.remove(&number)),
                Some(job) => job.committed_at = Some(now),
                None => {}
            }
        }
    }

    /// Records the rollback of these jobs.
    pub(crate) fn rolled_back(&self, numbers: std::ops::Range<u64>) {
        let mut inner = self.lock();
        for number in numbers {
            if inner.open.remove(&number).is_some_and(|job| job.finished) {
                inner.totals.surplus += 1;
            }
        }
    }

    /// Records that a producer commits this many seconds late.
    pub(crate) fn late(&self, seconds: f64) {
        let mut inner = self.lock();
        inner.window.late = inner.window.late.max(seconds);
    }

    /// Records a claim that found jobs.
    pub(crate) fn claimed(&self, milliseconds: f64) {
        self.lock().window.claims.push(milliseconds);
    }

    /// Records the start of a job.
    pub(crate) fn started(&self, number: u64) {
        let now = self.clock.now();
        let mut inner = self.lock();
        inner.totals.started += 1;
        // A job that starts before its producer has recorded the commit has not waited.
        let committed = inner
            .open
            .get(&number)
            .and_then(|job| job.committed_at)
            .unwrap_or(now);
        let waited = now.saturating_sub(committed) as f64 / 1_000.0;
        inner.window.starts.push(waited);
    }

    /// Records that the queue has acknowledged the end of a job.
    pub(crate) fn finished(&self, number: u64) {
        let mut inner = self.lock();
        match inner.open.get_mut(&number) {
            Some(job) if job.committed_at.is_some() => drop(inner.open.remove(&number)),
            Some(job) if !job.finished => job.finished = true,
            _ => {
                inner.totals.surplus += 1;
                return;
            }
        }
        inner.totals.finished += 1;
    }

    /// The totals until now.
    pub(crate) fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// Seconds since the commit of the oldest unfinished job.
    pub(crate) fn oldest(&self) -> f64 {
        let now = self.clock.now();
        let inner = self.lock();
        let oldest = inner.open.values().find_map(|job| job.committed_at);
        oldest.map_or(0.0, |at| now.saturating_sub(at) as f64 / 1e6)
    }

    /// Takes the records since the last call.
    pub(crate) fn take_window(&self) -> Window {
        std::mem::take(&mut self.lock().window)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Totals};
    use crate::clock::Clock;

    #[test]
    fn jobs_that_finish_before_their_commit_is_noted_do_not_wait() {
        let ledger = Ledger::new(Clock::start());
        let numbers = ledger.offer(2);
        ledger.started(0);
        ledger.finished(0);
        ledger.committed(numbers);
        let totals = Totals {
            committed: 2,
            started: 1,
            finished: 1,
            surplus: 0,
        };
        assert_eq!(ledger.totals(), totals);
        assert_eq!(ledger.totals().waiting(), 1);
        assert_eq!(ledger.take_window().starts, [0.0]);
    }

    #[test]
    fn jobs_that_are_finished_twice_or_were_rolled_back_are_surplus() {
        let ledger = Ledger::new(Clock::start());
        let (kept, gone) = (ledger.offer(1), ledger.offer(1));
        ledger.committed(kept);
        ledger.rolled_back(gone);
        ledger.finished(0);
        ledger.finished(0);
        ledger.finished(1);
        assert_eq!(ledger.totals().surplus, 2);
        assert_eq!(ledger.totals().finished, 1);
    }
}
