//! Who takes claimed jobs, and what each run of one came to.
//!
//! A program that wants whole claims takes them by [`claims`](crate::WorkerBuilder::claims); a
//! [`Consumer`] is the basis of these: of handlers, relays and syncs.

mod breaker;
mod context;
mod ticket;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::job::JobId;
pub use crate::job::Outcome;
use crate::retry::Backoff;
pub use breaker::Breaker;
pub use context::ConsumerContext;
pub(crate) use ticket::{Batch, Settled};
pub use ticket::{Delivery, Ticket};

/// Takes claimed jobs. Handlers, claims, relays and syncs share this trait.
/// [`WorkerBuilder::consumer`](crate::WorkerBuilder::consumer) puts one of your own on a queue.
///
/// Each [`Delivery`] carries a [`Ticket`]; a ticket that is dropped without a word counts as a
/// panic, so that no job is ever forgotten. Right before a job's effects begin,
/// [`Delivery::begin`] tells whether others may have rescued it meanwhile.
///
/// **Its methods are called on the engine's thread**, where the claims and acknowledgements of all
/// queues are made. They must return at once and must not panic, which would end the worker. What
/// they spawn there (`tokio::spawn`) would run there too: a consumer keeps what it is given and
/// lets tasks or threads of its own do the work.
///
/// ```
/// use posthaste::Outcome;
/// use posthaste::consumer::{Consumer, Delivery};
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
///         claim.into_iter().for_each(|delivery| delivery.ticket.settle(Outcome::Done));
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
    /// How many jobs it would take now. Asked before each claim, which brings at most this many.
    fn capacity(&self) -> usize;
    /// Takes a claim, also one that was in flight when [`give_back`](Self::give_back) was called. A
    /// job whose worker died comes alone and unasked, while nothing else is in the worker's hands,
    /// or with [others like it](Self::quarantine_batch).
    fn consume(&self, claim: Vec<Delivery>);
    /// Gives back everything that was not started; called when the worker stops. What runs, or
    /// comes now, may go on for the grace period.
    fn give_back(&self);
    /// Ends what still runs and gives it back; called when the grace period is over, and once more
    /// at the end.
    fn abort(&self);
    /// Called about ten times a second while jobs are out: whatever overstayed its time is to be
    /// reported now.
    fn watch(&self) {}
    /// Somebody cancelled these jobs; some of them may be here. Called again and again while they
    /// run. Who runs one ends it as soon as it can and says so by [`Ticket::cancel`]; an outcome
    /// that comes first counts, and one that is tried again is cancelled where it waits.
    fn cancel(&self, _jobs: &[JobId]) {}
    /// The longest that one job may run or wait for others in the consumer's hands; none: without a
    /// limit. Jobs of dead workers wait for as
    /// long, to be run alone.
    fn limit(&self) -> Option<Duration> {
        None
    }
    /// How many jobs whose worker died come together; one by default. More is for
    /// consumers that take jobs by the batch: only such come together as have seen one worker die,
    /// and for which a counted attempt ends nothing (`max_attempts(None)`). If they see another
    /// die, each comes alone.
    fn quarantine_batch(&self) -> usize {
        1
    }
    /// The wait before the next attempt of a job that failed. Asked once, at the start.
    fn backoff(&self) -> Backoff {
        Backoff::default()
    }
    /// Notified when there is room again after outcomes went out. Asked once, at the start; without
    /// it, the worker asks for the [capacity](Self::capacity) after outcomes, and every 50 ms.
    fn room(&self) -> Option<Arc<Notify>> {
        None
    }
    /// Whether the jobs that it holds must stay before those that come later: what a claim took
    /// whose answer was lost is searched for before the next claim is made, else it is given back.
    fn is_ordered(&self) -> bool {
        false
    }
    /// Whether it may have jobs whose worker died now. They wait until it may, or another worker's
    /// consumer has them.
    fn takes_quarantined(&self) -> bool {
        true
    }
    /// The worker was declared dead: what it had claimed is not its own any more. Called before
    /// anything is claimed as another one, by the engine or the heartbeat: it must return at once.
    fn worker_lost(&self) {}
    /// A task that runs beside the claims, from the worker's start until it
    /// [ends](ConsumerContext::ended). A task that ends earlier, or panics, ends the worker. It
    /// runs on the engine's thread, so it must not block or compute for long.
    fn background_task(&self, _worker: ConsumerContext) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// A consumer that is shared, so that the one that made it can still ask it.
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
    fn quarantine_batch(&self) -> usize {
        (**self).quarantine_batch()
    }
    fn backoff(&self) -> Backoff {
        (**self).backoff()
    }
    fn room(&self) -> Option<Arc<Notify>> {
        (**self).room()
    }
    fn is_ordered(&self) -> bool {
        (**self).is_ordered()
    }
    fn takes_quarantined(&self) -> bool {
        (**self).takes_quarantined()
    }
    fn worker_lost(&self) {
        (**self).worker_lost();
    }
    fn background_task(&self, worker: ConsumerContext) -> Option<BoxFuture<'static, ()>> {
        (**self).background_task(worker)
    }
}
