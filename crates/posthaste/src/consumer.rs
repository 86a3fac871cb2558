//! Who takes claimed jobs, and what each run of one came to.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::acknowledge::{Batch, Settled};
use crate::job::{Job, JobId};
use crate::relay::Relay;
use crate::retry::{Backoff, Report, verdict};
use crate::store::Fence;
use crate::work::handler::{self, HandlerError};

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
/// an index true. [`WorkerBuilder::consumer`](crate::WorkerBuilder::consumer) puts one on a queue.
///
/// Each [`Delivery`] carries a [`Ticket`]; a ticket that is dropped without a word counts as a panic, so that no job is ever forgotten.
///
/// **Its methods are called on the engine's thread**, where the claims and acknowledgements of all queues are made. They must return at once
/// and must not panic, which would end the worker. What they spawn there (`tokio::spawn`) would run there too: a consumer keeps what it is
/// given and lets tasks or threads of its own do the work.
///
/// ```
/// use posthaste::{Consumer, Delivery, Outcome};
/// use tokio::sync::mpsc::{Receiver, Sender, channel};
///
/// /// Hands whole claims to a task, at most four at once.
/// struct Batches(Sender<Vec<Delivery>>);
///
/// impl Consumer for Batches {
///     fn capacity(&self) -> usize {
///         if self.0.capacity() > 0 { 1_000 } else { 0 }
///     }
///     fn consume(&self, claim: Vec<Delivery>) {
///         if let Err(refused) = self.0.try_send(claim) {
///             let claim = refused.into_inner();
///             claim.into_iter().for_each(|delivery| delivery.ticket.give_back());
///         }
///     }
///     fn give_back(&self) {} // the few claims that wait are worked within the grace period
///     fn abort(&self) {}
/// }
///
/// async fn work(mut claims: Receiver<Vec<Delivery>>) {
///     while let Some(claim) = claims.recv().await {
///         // One call for all of them, then each gets its outcome.
///         claim.into_iter().for_each(|delivery| delivery.ticket.finish(Outcome::Done));
///     }
/// }
///
/// # fn builder(pool: deadpool_postgres::Pool) -> posthaste::WorkerBuilder {
/// let (batches, claims) = channel(4);
/// tokio::spawn(work(claims));
/// posthaste::Worker::builder(pool).consumer("audit", Batches(batches))
/// # }
/// ```
pub trait Consumer: Send + Sync + 'static {
    /// How many jobs it would take now. Asked before each claim, which brings at most so many.
    fn capacity(&self) -> usize;
    /// Takes a claim, also one that was under way when [`give_back`](Self::give_back) was called. A job whose worker died comes alone and
    /// unasked, while nothing else is in the worker's hands, or with [others like it](Self::suspects).
    fn consume(&self, claim: Vec<Delivery>);
    /// Gives back everything that was not started; called when the worker stops. What runs, or comes now, may go on for the grace period.
    fn give_back(&self);
    /// Ends what still runs and gives it back; called when the grace period is over, and once more at the end.
    fn abort(&self);
    /// Called about ten times a second while jobs are out: whatever overstayed its time is to be reported now.
    fn watch(&self) {}
    /// Somebody cancelled these jobs; some of them may be here. Called again and again while they run. Who runs one ends it as soon as it can and
    /// says so by [`Ticket::cancelled`]; an outcome that comes first counts, and one that is tried again is cancelled where it waits.
    fn cancel(&self, _jobs: &[JobId]) {}
    /// The longest that one job may run; none: without a limit. Jobs of dead workers wait for as long, to be run alone.
    fn limit(&self) -> Option<Duration> {
        None
    }
    /// How many jobs whose worker died come together; one unless said otherwise. More is for consumers that take jobs by the batch: only such come together as
    /// have seen one worker die, and for which a burnt attempt ends nothing (`max_attempts(None)`). If they see another die, each comes alone.
    fn suspects(&self) -> usize {
        1
    }
    /// The wait before the next attempt of a job that failed. Asked once, at the start.
    fn backoff(&self) -> Backoff {
        Backoff::default()
    }
    /// The relay that it is, for what the database is told of relays.
    #[doc(hidden)]
    fn as_relay(&self) -> Option<&Relay> {
        None
    }
}

/// A consumer that is shared, so that whoever made it can still ask it.
impl<C: Consumer + ?Sized> Consumer for Arc<C> {
    fn capacity(&self) -> usize {
        (**self).capacity()
    }
    fn consume(&self, claim: Vec<Delivery>) {
        (**self).consume(claim);
    }
    fn give_back(&self) {
        (**self).give_back();
    }
    fn abort(&self) {
        (**self).abort();
    }
    fn watch(&self) {
        (**self).watch();
    }
    fn cancel(&self, jobs: &[JobId]) {
        (**self).cancel(jobs);
    }
    fn limit(&self) -> Option<Duration> {
        (**self).limit()
    }
    fn suspects(&self) -> usize {
        (**self).suspects()
    }
    fn backoff(&self) -> Backoff {
        (**self).backoff()
    }
    fn as_relay(&self) -> Option<&Relay> {
        (**self).as_relay()
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

    /// The id by which a receiver outside drops duplicates: the same at each attempt, `posthaste.delivery_id(id)` in SQL.
    pub fn delivery_id(&self) -> Uuid {
        self.batch.worker.incarnations.delivery_id(self.job.id)
    }

    /// Says what became of the job.
    pub fn finish(self, outcome: Outcome) {
        self.report(Report::Returned(outcome));
    }

    /// The attempt failed, as when a handler returns an error: it is burnt, and the back-off decides when the next one comes, unless the error is
    /// a [`TryAgain`](crate::TryAgain), which says both itself.
    pub fn fail(self, error: impl Into<HandlerError>) {
        self.report(handler::failure(error.into()));
    }

    /// The job ends as cancelled, because [`Consumer::cancel`] asked for it.
    pub fn cancelled(self) {
        self.report(Report::Cancelled);
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
            let is_completed = matches!(report, Report::CompletedInTransaction);
            let verdict = verdict(&self.job, &report, &self.batch.backoff, fastrand::f64());
            // The receiver ends only with the engine, and then the store takes the job back by itself.
            let _ = settled.send(Settled {
                batch: Arc::clone(&self.batch),
                id: self.job.id,
                job: Some(Arc::clone(&self.job)),
                is_completed,
                is_keyed: self.job.unique_key.is_some() || self.job.ordering_key.is_some(),
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
