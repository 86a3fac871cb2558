//! Observes and limits the runs of a worker for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::consumer::Outcome;
use crate::job::Job;
use crate::retry::RunResult;

/// A finished run, as a test observes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FinishedRun {
    /// The job.
    pub job: Arc<Job>,
    /// The result as it is stored with the job: an outcome, or an error with its causes. A panic
    /// and a timeout are errors too.
    pub result: Result<Outcome, String>,
}

/// Observes the runs of a worker, and may end its claims after a number of jobs.
#[derive(Clone)]
pub(crate) struct TestProbe {
    ran: UnboundedSender<FinishedRun>,
    left: Arc<AtomicUsize>,
}

impl TestProbe {
    /// Allows at most this many jobs.
    pub(crate) fn new(jobs: usize) -> (Self, UnboundedReceiver<FinishedRun>) {
        let (ran, runs) = unbounded_channel();
        let left = Arc::new(AtomicUsize::new(jobs));
        (Self { ran, left }, runs)
    }

    /// Returns the number of jobs that may still be taken.
    pub(crate) fn remaining(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// Takes one of the remaining jobs; returns whether there was one.
    pub(crate) fn take_one(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        let order = Ordering::SeqCst;
        self.left.fetch_update(order, order, one_less).is_ok()
    }

    /// Returns this many jobs that were taken and did not run.
    pub(crate) fn give_back(&self, jobs: usize) {
        let more = |left: usize| Some(left.saturating_add(jobs));
        let order = Ordering::SeqCst;
        let _ = self.left.fetch_update(order, order, more);
    }

    pub(crate) fn report_run(&self, job: &Arc<Job>, result: &RunResult) {
        let result = match result {
            RunResult::Returned(outcome) => Ok(outcome.clone()),
            RunResult::CompletedInTransaction => Ok(Outcome::Done),
            RunResult::Failed(error)
            | RunResult::Misread { error, .. }
            | RunResult::FailedUntil { error, .. } => Err(error.clone()),
            RunResult::Panicked(error) => Err(format!("panicked: {error}")),
            RunResult::TimedOut(after) => Err(format!("ran longer than {after:?}")),
            RunResult::Cancelled => Err("cancelled".into()),
            RunResult::Unknown => Err("no handler knows the name".into()),
            RunResult::GivenBack => Err("released".into()),
        };
        // The receiver may have been dropped.
        let _ = self.ran.send(FinishedRun {
            job: Arc::clone(job),
            result,
        });
    }
}
