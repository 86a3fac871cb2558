//! Decides whether a failure is the endpoint's or the job's. No IO and no clock.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use crate::job::JobId;

/// The most jobs that are recorded; beyond it all are forgotten and count as new.
const MAX_RECORDED_JOBS: usize = 10_000;

/// Jobs at which an endpoint failed in a way that may concern all jobs: it answered about itself,
/// or not at all.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Requests in flight.
    asked: u64,
    /// Jobs that were accepted.
    taken: u64,
    /// Failures since a job was accepted.
    in_a_row: u64,
    /// For each failed job, the number of accepted jobs from which its next failure is the job's.
    jobs: HashMap<JobId, u64>,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The job: it failed before, and others were accepted since.
    Job,
    /// The endpoint, because nothing shows that the job is the cause.
    Endpoint {
        /// Whether the request before failed too.
        again: bool,
    },
}

impl Faults {
    /// Begins a request for this job.
    pub fn ask(&self, job: JobId) -> Asked<'_> {
        self.inner().asked += 1;
        let faults = self;
        Asked { faults, job }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

/// A request in flight.
#[derive(Debug)]
pub struct Asked<'a> {
    faults: &'a Faults,
    job: JobId,
}

impl Asked<'_> {
    /// Records that the endpoint accepted this job, or rejected only it.
    pub fn taken(&self) {
        let mut inner = self.faults.inner();
        inner.taken += 1;
        inner.in_a_row = 0;
        inner.jobs.remove(&self.job);
    }

    /// Records a failure of the endpoint that either may have caused, and returns the cause.
    pub fn failed(&self) -> Blame {
        let mut inner = self.faults.inner();
        // Other requests in flight may have been accepted before this failure.
        let then = inner.taken + inner.asked;
        if inner.jobs.len() >= MAX_RECORDED_JOBS {
            inner.jobs.clear();
        }
        let before = inner.jobs.insert(self.job, then);
        inner.in_a_row += 1;
        let again = inner.in_a_row > 1;
        match before.is_some_and(|then| inner.taken >= then) {
            true => Blame::Job,
            false => Blame::Endpoint { again },
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.faults.inner().asked -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Blame = Blame::Endpoint { again: false };
    const AGAIN: Blame = Blame::Endpoint { again: true };

    #[test]
    fn a_job_is_blamed_when_it_fails_again_after_others_succeed() {
        let faults = Faults::default();
        assert_eq!(faults.ask(JobId(1)).failed(), FIRST);
        assert_eq!(faults.ask(JobId(1)).failed(), AGAIN, "it is the only one");
        faults.ask(JobId(2)).taken();
        assert_eq!(faults.ask(JobId(3)).failed(), FIRST, "it is new");
        assert_eq!(faults.ask(JobId(1)).failed(), Blame::Job);
        assert_eq!(faults.ask(JobId(1)).failed(), AGAIN, "no other was taken");
        faults.ask(JobId(1)).taken();
        assert_eq!(faults.ask(JobId(1)).failed(), FIRST, "it was taken");
    }

    #[test]
    fn successes_during_a_failing_request_prove_nothing() {
        let faults = Faults::default();
        let under_way = [2, 3].map(|id| faults.ask(JobId(id)));
        assert_eq!(faults.ask(JobId(1)).failed(), FIRST);
        under_way.iter().for_each(Asked::taken);
        drop(under_way);
        assert_eq!(faults.ask(JobId(1)).failed(), FIRST);
        (0..4).for_each(|id| faults.ask(JobId(10 + id)).taken());
        assert_eq!(faults.ask(JobId(1)).failed(), Blame::Job);
    }

    #[test]
    fn remembered_failures_are_bounded() {
        let faults = Faults::default();
        for id in 0..2 * i64::try_from(MAX_RECORDED_JOBS).unwrap() {
            faults.ask(JobId(id)).failed();
        }
        assert!(faults.inner().jobs.len() <= MAX_RECORDED_JOBS);
    }
}
