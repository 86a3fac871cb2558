//! A claimed job that a consumer holds, and its outcome.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::handler::{self, HandlerError};
use crate::identity::Identity;
use crate::job::{Job, JobId, Outcome};
use crate::log_limit::{FEW, LogLimit};
use crate::metrics::RunTiming;
use crate::retry::{Backoff, Disposition, RunResult, disposition_of_run};
use crate::store::Fence;

/// A claimed batch whose jobs are in this process.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) fence: Fence,
    pub(crate) jobs: usize,
    /// Whether its consumer is ordered: it keeps the order of jobs that it gives back, and waits
    /// before it claims them again.
    pub(crate) is_ordered: bool,
    pub(crate) backoff: Backoff,
    /// The worker that claimed it.
    pub(crate) worker: Arc<Identity>,
    /// While this exists, the claim is not treated as one without an owner.
    pub(crate) _held: Arc<Uuid>,
}

/// The outcome of one job, to be acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) batch: Arc<Batch>,
    pub(crate) id: JobId,
    /// `None` if it could not be read.
    pub(crate) job: Option<Arc<Job>>,
    /// Whether the handler completed it in its own transaction, which may have been rolled back.
    pub(crate) may_be_completed: bool,
    /// Whether the handler also returned that it is done: if the job is still open, that
    /// transaction was not committed.
    pub(crate) is_said_completed: bool,
    /// Whether it holds a unique or ordering key, which has to be released.
    pub(crate) is_keyed: bool,
    pub(crate) disposition: Disposition,
    pub(crate) took: RunTiming,
}

/// A job that a consumer holds.
#[derive(Debug)]
pub struct Delivery {
    /// The job.
    pub job: Arc<Job>,
    /// The ticket, which takes its outcome.
    pub ticket: Ticket,
}

impl Delivery {
    /// Checks the job as [`Ticket::begin`] does.
    pub fn begin(self) -> Option<Self> {
        let Self { job, ticket } = self;
        ticket.begin().map(|ticket| Self { job, ticket })
    }
}

/// The right and the duty to report the outcome of one job.
pub struct Ticket {
    pub(crate) job: Arc<Job>,
    pub(crate) batch: Arc<Batch>,
    /// Overrides the back-off of the queue.
    pub(crate) backoff: Option<Backoff>,
    /// When its run began: when it was delivered, unless it had to wait.
    pub(crate) began: Instant,
    /// As in [`Settled`].
    pub(crate) may_be_completed: bool,
    settled: Option<UnboundedSender<Settled>>,
}

impl Ticket {
    pub(crate) fn new(job: Arc<Job>, batch: Arc<Batch>, settled: UnboundedSender<Settled>) -> Self {
        Self {
            job,
            batch,
            backoff: None,
            began: Instant::now(),
            may_be_completed: false,
            settled: Some(settled),
        }
    }

    /// The fence that an acknowledgement of this job must carry.
    pub fn fence(&self) -> Fence {
        self.batch.fence
    }

    /// Returns the id by which external receivers drop duplicates: the same at each attempt, and
    /// `posthaste.delivery_id(id)` in SQL.
    pub fn delivery_id(&self) -> Uuid {
        self.batch.worker.epochs.delivery_id(self.job.id)
    }

    /// Checks right before the job's effects begin that the job is still this worker's. Returns
    /// `None` if another worker may have rescued it, because this process hung or its heartbeats
    /// had no answer for `rescue_after`. The job is then given back, which changes nothing if it
    /// was rescued.
    pub fn begin(self) -> Option<Self> {
        if !self.batch.worker.tenure.is_over() {
            return Some(self);
        }
        if let Some(left_out) = STALE_LOG.admit(&self.job.queue) {
            tracing::warn!(
                job = self.job.id.0,
                jobs = left_out + 1,
                queue = &*self.job.queue,
                "jobs are returned without running: another worker may have rescued them"
            );
        }
        self.give_back();
        None
    }

    /// Returns the job as it was claimed.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// Returns the worker that claimed the job, as in `posthaste.worker`.
    pub fn worker(&self) -> i64 {
        self.batch.worker.id
    }

    /// Reports the outcome of the job.
    pub fn settle(self, outcome: Outcome) {
        self.record(RunResult::Returned(outcome));
    }

    /// Reports a failed attempt, as when a handler returns an error: it is counted, and the
    /// back-off sets the delay, unless the error is a [`RetryLater`](crate::RetryLater), which sets
    /// both.
    pub fn fail(self, error: impl Into<HandlerError> + 'static) {
        self.record(handler::failure(handler::into_handler_error(error)));
    }

    /// Ends the job as cancelled, after [`Consumer::cancel`](super::Consumer::cancel) requested it.
    pub fn cancel(self) {
        self.record(RunResult::Cancelled);
    }

    /// Gives the job back without counting an attempt.
    pub fn give_back(self) {
        self.record(RunResult::GivenBack);
    }

    pub(crate) fn record(mut self, result: RunResult) {
        self.send(result);
    }

    fn send(&mut self, result: RunResult) {
        if let Some(settled) = self.settled.take() {
            let backoff = self.backoff.as_ref().unwrap_or(&self.batch.backoff);
            let disposition = disposition_of_run(&self.job, &result, backoff, fastrand::f64());
            let is_said_completed = matches!(result, RunResult::CompletedInTransaction);
            if !is_said_completed {
                log_outcome(&self.job, &result, &disposition, self.may_be_completed);
            }
            // The receiver ends only with the engine, and then the job is rescued.
            let _ = settled.send(Settled {
                batch: Arc::clone(&self.batch),
                id: self.job.id,
                job: Some(Arc::clone(&self.job)),
                may_be_completed: self.may_be_completed,
                is_said_completed,
                is_keyed: self.job.unique_key.is_some() || self.job.ordering_key.is_some(),
                disposition,
                took: RunTiming {
                    began: self.began,
                    ended: Instant::now(),
                },
            });
        }
    }
}

impl Settled {
    /// Logs the outcome of a job that its handler completed in a transaction, after the database
    /// has answered that the job was still open.
    pub(crate) fn log_if_rolled_back(&self) {
        if let (true, Some(job)) = (self.is_said_completed, &self.job) {
            let result = RunResult::CompletedInTransaction;
            log_outcome(job, &result, &self.disposition, false);
        }
    }
}

static STALE_LOG: LogLimit = LogLimit::new(1);
static FAILED_LOG: LogLimit = LogLimit::new(FEW);
static DEAD_LOG: LogLimit = LogLimit::new(FEW);
static ENDED_LOG: LogLimit = LogLimit::new(FEW);

/// Logs the outcome of a run in one line, limited per name. It never logs an argument.
fn log_outcome(job: &Job, result: &RunResult, disposition: &Disposition, may_be_completed: bool) {
    macro_rules! line {
        ($level:ident, $($fields:tt)+) => {
            tracing::$level!(
                job = job.id.0,
                name = &*job.name,
                queue = &*job.queue,
                attempt = job.attempt,
                $($fields)+
            )
        };
    }
    let loggable = |error: &str| match result {
        RunResult::Misread { .. } => "the arguments do not match their type".to_owned(),
        _ => error.to_owned(),
    };
    match disposition {
        Disposition::Done => line!(debug, "a job is done"),
        Disposition::GiveBack => line!(debug, "a job was returned"),
        Disposition::Await { until } => line!(debug, %until, "a job waits to be confirmed"),
        Disposition::Reschedule {
            error: Some(error), ..
        }
        | Disposition::DeadLetter { error, .. }
            if may_be_completed =>
        {
            let error = loggable(error);
            if let Some(left_out) = FAILED_LOG.admit_field(&job.name) {
                line!(
                    warn,
                    left_out,
                    error,
                    "an attempt failed, unless complete_in was committed"
                );
            }
        }
        Disposition::Reschedule { attempt, error, .. } => {
            let error = error.as_deref().map(loggable);
            if *attempt <= job.attempts_counted() {
                line!(debug, error, "a job is rescheduled; no attempt is counted");
            } else if let Some(left_out) = FAILED_LOG.admit_field(&job.name) {
                line!(
                    warn,
                    left_out,
                    error,
                    "an attempt failed; the job is tried again"
                );
            }
        }
        Disposition::DeadLetter { state, error, .. } => {
            let error = loggable(error);
            match *state {
                "dead" => {
                    if let Some(left_out) = DEAD_LOG.admit_field(&job.name) {
                        line!(error, left_out, error, "a job is dead: no attempt is left");
                    }
                }
                "discarded" => {
                    if let Some(left_out) = ENDED_LOG.admit_field(&job.name) {
                        line!(warn, left_out, error, "a job was discarded");
                    }
                }
                state => line!(info, error, "a job is {state}"),
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.send(RunResult::Panicked("dropped without an outcome".into()));
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("job", &self.job.id)
            .finish_non_exhaustive()
    }
}
