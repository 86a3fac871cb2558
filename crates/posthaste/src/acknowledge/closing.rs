//! Chooses how the outcomes of one batch are sent: in one statement for all if possible. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::consumer::Settled;
use crate::job::Job;
use crate::retry::Disposition;

/// The method that closes a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClosingMethod {
    /// All its jobs are done without conditions: one statement, which names no job, closes this and
    /// other batches.
    Whole,
    /// All its jobs are rescheduled by the same delay with no attempt counted: one statement that
    /// names no job.
    Reschedule {
        after: Duration,
        error: Option<String>,
    },
    /// Each job is closed with its own outcome.
    JobByJob,
}

impl ClosingMethod {
    pub(super) fn for_jobs(jobs: &[Settled]) -> Self {
        let Some(first) = jobs.first() else {
            return Self::JobByJob;
        };
        if first.batch.jobs != jobs.len() || first.batch.fence.slot < 0 {
            return Self::JobByJob;
        }
        match &first.disposition {
            Disposition::Done if jobs.iter().all(Settled::is_plain) => Self::Whole,
            Disposition::Reschedule { after, error, .. } => match after {
                Some(after)
                    if jobs
                        .iter()
                        .all(|one| one.is_rescheduled(*after, error.as_deref())) =>
                {
                    let (after, error) = (*after, error.clone());
                    Self::Reschedule { after, error }
                }
                _ => Self::JobByJob,
            },
            _ => Self::JobByJob,
        }
    }
}

impl Settled {
    fn is_plain(&self) -> bool {
        self.disposition == Disposition::Done && !self.is_keyed
    }

    /// Whether it is rescheduled after this time with no other change.
    fn is_rescheduled(&self, wait: Duration, why: Option<&str>) -> bool {
        let Disposition::Reschedule {
            attempt,
            after,
            until: None,
            error,
        } = &self.disposition
        else {
            return false;
        };
        let uncounted = |job: &Arc<Job>| job.attempts_counted() == *attempt;
        *after == Some(wait) && error.as_deref() == why && self.job.as_ref().is_some_and(uncounted)
    }
}
