//! Who takes claimed jobs, and what each run of one came to.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;

use crate::acknowledge::{Batch, Settled};
use crate::job::Job;
use crate::retry::{Report, verdict};
use crate::store::Fence;

/// What a consumer says about one job it was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The work is done.
    Done,
    /// Try again; burns an attempt. Without `after`, the queue's back-off decides.
    Retry {
        /// How long to wait.
        after: Option<Duration>,
    },
    /// Put off; burns no attempt.
    Snooze {
        /// Until when, by the server's clock.
        until: Timestamp,
    },
    /// Handed on: the job is held until `posthaste.done(delivery_id)` confirms its effect. Unconfirmed, it is tried again, which burns an attempt.
    Await {
        /// When to stop waiting for the confirmation.
        until: Timestamp,
    },
    /// Give up: the job is kept as discarded, with the reason.
    Discard {
        /// Why; shown to people.
        reason: String,
    },
}

/// Takes claimed jobs. There are three kinds, and they share this trait: *work* runs handlers, *relay* sends to a destination, *sync* keeps
/// an index true.
///
/// A consumer never blocks the caller: it keeps what it is given and lets its own tasks do the work. Each [`Delivery`] carries a [`Ticket`];
/// a ticket that is dropped without a word counts as a panic, so that no job is ever forgotten.
pub trait Consumer: Send + Sync + 'static {
    /// How many jobs it would take now.
    fn capacity(&self) -> usize;
    /// Takes a claim.
    fn consume(&self, claim: Vec<Delivery>);
    /// Gives back everything that was not started; called when the worker stops. What runs may go on.
    fn give_back(&self);
    /// Ends what still runs and gives it back; called when the grace period is over.
    fn abort(&self);
    /// Called about ten times a second from a thread on which no consumer runs: whatever overstayed its time is to be reported now.
    fn watch(&self) {}
    /// The longest that one job may run; none: without a limit.
    fn limit(&self) -> Option<Duration> {
        None
    }
}

/// A job in the hands of a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// The job.
    pub job: Arc<Job>,
    /// Where its outcome goes.
    pub ticket: Ticket,
}

/// The right and the duty to say what became of one job.
pub struct Ticket {
    pub(crate) job: Arc<Job>,
    pub(crate) batch: Arc<Batch>,
    settled: Option<UnboundedSender<Settled>>,
}

impl Ticket {
    pub(crate) fn new(job: Arc<Job>, batch: Arc<Batch>, settled: UnboundedSender<Settled>) -> Self {
        Self {
            job,
            batch,
            settled: Some(settled),
        }
    }

    /// The fence that an acknowledgement of this job must carry.
    pub fn fence(&self) -> Fence {
        self.batch.fence
    }

    /// Says what became of the job.
    pub fn finish(self, outcome: Outcome) {
        self.report(Report::Returned(outcome));
    }

    /// The attempt failed; it is burnt, and the back-off decides when the next one comes.
    pub fn fail(self, error: impl Into<String>) {
        self.report(Report::Failed(error.into()));
    }

    /// Gives the job back without burning an attempt.
    pub fn give_back(self) {
        self.report(Report::GivenBack);
    }

    pub(crate) fn report(mut self, report: Report) {
        self.send(report);
    }

    fn send(&mut self, report: Report) {
        if let Some(settled) = self.settled.take() {
            let verdict = verdict(&self.job, &report, &self.batch.backoff, fastrand::f64());
            // The receiver ends only with the engine, and then the store takes the job back by itself.
            let _ = settled.send(Settled {
                batch: Arc::clone(&self.batch),
                id: self.job.id,
                is_keyed: self.job.unique_key.is_some(),
                verdict,
            });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.send(Report::Panicked("dropped without an outcome".into()));
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("job", &self.job.id)
            .finish_non_exhaustive()
    }
}
