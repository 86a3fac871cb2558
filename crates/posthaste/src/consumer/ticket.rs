//! A claimed job in somebody's hands, and what became of it.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::handler::{self, HandlerError};
use crate::identity::Identity;
use crate::job::{Job, JobId, Outcome};
use crate::log_limit::{FEW, LogLimit};
use crate::metrics::RunTiming;
use crate::retry::{Backoff, Disposition, RunResult, disposition};
use crate::store::Fence;

/// A claimed batch that is being worked.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) fence: Fence,
    pub(crate) jobs: usize,
    /// Its consumer keeps the order of what it gives back, and waits by itself.
    pub(crate) is_ordered: bool,
    pub(crate) backoff: Backoff,
    /// Whose claim it is.
    pub(crate) worker: Arc<Identity>,
    /// While it exists, the claim is not searched for among those without an owner.
    pub(crate) _held: Arc<Uuid>,
}

/// What is to become of one job.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) batch: Arc<Batch>,
    pub(crate) id: JobId,
    /// None when it could not be read.
    pub(crate) job: Option<Arc<Job>>,
    /// The handler has completed it in a transaction of its own, unless that was rolled back.
    pub(crate) may_be_completed: bool,
    /// The handler also returned that it is done: if the job is still open, that transaction was
    /// not committed.
    pub(crate) is_said_completed: bool,
    /// It holds a unique key, which has to be released.
    pub(crate) is_keyed: bool,
    pub(crate) disposition: Disposition,
    pub(crate) took: RunTiming,
}

/// A job in the hands of a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// The job.
    pub job: Arc<Job>,
    /// Where its outcome goes.
    pub ticket: Ticket,
}

impl Delivery {
    /// As [`Ticket::begin`].
    pub fn begin(self) -> Option<Self> {
        let Self { job, ticket } = self;
        ticket.begin().map(|ticket| Self { job, ticket })
    }
}

/// The right and the duty to say what became of one job.
pub struct Ticket {
    pub(crate) job: Arc<Job>,
    pub(crate) batch: Arc<Batch>,
    /// Another than the queue's.
    pub(crate) backoff: Option<Backoff>,
    /// When its run began: when it was handed over, unless it stood in line.
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

    /// The id by which a receiver outside drops duplicates: the same at each attempt,
    /// `posthaste.delivery_id(id)` in SQL.
    pub fn delivery_id(&self) -> Uuid {
        self.batch.worker.epochs.delivery_id(self.job.id)
    }

    /// The last question before the job's effects begin: nothing where others may have rescued it,
    /// because this process stood still or its heartbeats had no answer for `rescue_after`. Then it
    /// is given back, which changes nothing if it was rescued.
    pub fn begin(self) -> Option<Self> {
        if !self.batch.worker.tenure.is_over() {
            return Some(self);
        }
        if let Some(left_out) = STALE.admit(&self.job.queue) {
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

    /// The job as it was claimed.
    pub fn job(&self) -> &Arc<Job> {
        &self.job
    }

    /// The worker that claimed the job, as in `posthaste.worker`.
    pub fn worker(&self) -> i64 {
        self.batch.worker.id
    }

    /// Says what became of the job.
    pub fn settle(self, outcome: Outcome) {
        self.record(RunResult::Returned(outcome));
    }

    /// The attempt failed, as when a handler returns an error: it is counted, and the back-off
    /// decides when the next one comes, unless the error is a [`RetryLater`](crate::RetryLater),
    /// which says both itself.
    pub fn fail(self, error: impl Into<HandlerError> + 'static) {
        self.record(handler::failure(handler::boxed(error)));
    }

    /// The job ends as cancelled, because [`Consumer::cancel`](super::Consumer::cancel) asked for
    /// it.
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
            let disposition = disposition(&self.job, &result, backoff, fastrand::f64());
            let is_said_completed = matches!(result, RunResult::CompletedInTransaction);
            if !is_said_completed {
                log(&self.job, &result, &disposition, self.may_be_completed);
            }
            // The receiver ends only with the engine, and then the store takes the job back by
            // itself.
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
    /// Logs the outcome of a job that its handler had completed in a transaction, once the database
    /// has answered that the job was still open.
    pub(crate) fn log_if_rolled_back(&self) {
        if let (true, Some(job)) = (self.is_said_completed, &self.job) {
            let result = RunResult::CompletedInTransaction;
            log(job, &result, &self.disposition, false);
        }
    }
}

static STALE: LogLimit = LogLimit::new(1);
static FAILED: LogLimit = LogLimit::new(FEW);
static DEAD: LogLimit = LogLimit::new(FEW);
static ENDED: LogLimit = LogLimit::new(FEW);

/// One line for what became of a run, as far as there are not many of its name. It never says an
/// argument.
fn log(job: &Job, result: &RunResult, disposition: &Disposition, may_be_completed: bool) {
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
            if let Some(left_out) = FAILED.admit_field(&job.name) {
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
            } else if let Some(left_out) = FAILED.admit_field(&job.name) {
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
                    if let Some(left_out) = DEAD.admit_field(&job.name) {
                        line!(error, left_out, error, "a job is dead: no attempt is left");
                    }
                }
                "discarded" => {
                    if let Some(left_out) = ENDED.admit_field(&job.name) {
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
