//! Consumers, which take claimed jobs, and the outcomes of runs.
//!
//! A program that wants whole claims takes them by [`claims`](crate::WorkerBuilder::claims); a
//! [`Consumer`] is the basis of claims, handlers, relays and syncs.

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

/// A receiver of claimed jobs. Handlers, claims, relays and syncs implement this trait.
/// [`WorkerBuilder::consumer`](crate::WorkerBuilder::consumer) puts a custom one on a queue.
///
/// Each [`Delivery`] has a [`Ticket`]; a ticket that is dropped without an outcome counts as a
/// panic, so that no job is forgotten. Right before a job's effects begin, [`Delivery::begin`]
/// checks whether another worker may have rescued it.
///
/// **Its methods are called on the engine's thread**, which makes the claims and acknowledgements
/// of all queues. They must return at once and must not panic, which would end the worker. Tasks
/// that they spawn there (`tokio::spawn`) would run there too: a consumer stores its deliveries and
/// leaves the work to its tasks or threads.
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
    /// Returns how many jobs it accepts now. Called before each claim, which brings at most this
    /// many.
    fn capacity(&self) -> usize;
    /// Takes a claim, also one that was in flight when [`give_back`](Self::give_back) was called. A
    /// job whose worker died is delivered regardless of the capacity, while the worker has no other
    /// jobs: alone, or with [others like it](Self::quarantine_batch).
    fn consume(&self, claim: Vec<Delivery>);
    /// Gives back all jobs that were not started; called when the worker stops. Jobs that run, or
    /// come later, may continue for the grace period.
    fn give_back(&self);
    /// Ends the jobs that still run and gives them back; called when the grace period is over, and
    /// again at the end.
    fn abort(&self);
    /// Called approximately ten times a second while jobs are outstanding: jobs that exceeded their
    /// time are to be reported now.
    fn watch(&self) {}
    /// These jobs were cancelled; this consumer may have some of them. Called repeatedly while they
    /// run. A consumer ends such a run as soon as it can and reports that by [`Ticket::cancel`]; an
    /// outcome that comes first counts, and a job that is to be retried is cancelled while it
    /// waits.
    fn cancel(&self, _jobs: &[JobId]) {}
    /// The longest time that one job may run or wait for others in this consumer; `None`: no limit.
    /// Jobs of dead workers wait for as long, to be run alone.
    fn limit(&self) -> Option<Duration> {
        None
    }
    /// The most jobs whose worker died that are delivered together; one by default. A larger number
    /// is for consumers that take jobs in batches. Only jobs are delivered together that have been
    /// through one death of a worker and for which a counted attempt ends nothing
    /// (`max_attempts(None)`). After another death, each is delivered alone.
    fn quarantine_batch(&self) -> usize {
        1
    }
    /// Returns the delays between attempts of a failed job. Called once, at the start.
    fn backoff(&self) -> Backoff {
        Backoff::default()
    }
    /// Returns what notifies the engine when there is room again after outcomes were sent. Called
    /// once, at the start; without it, the worker reads the [capacity](Self::capacity) after
    /// outcomes, and every 50 ms.
    fn room(&self) -> Option<Arc<Notify>> {
        None
    }
    /// Whether its jobs must stay before those that come later: the jobs of a claim whose answer
    /// was lost are then searched for before the next claim is made. Otherwise they are given back.
    fn is_ordered(&self) -> bool {
        false
    }
    /// Whether it accepts jobs now whose worker died. They wait until it does, or until another
    /// worker's consumer takes them.
    fn takes_quarantined(&self) -> bool {
        true
    }
    /// The worker was declared dead: it no longer owns the jobs that it claimed. Called by the
    /// engine or the heartbeat before anything is claimed under a new identity; it must return at
    /// once.
    fn worker_lost(&self) {}
    /// Returns a task that runs beside the claims, from the worker's start until it
    /// [ends](ConsumerContext::ended). A task that ends earlier, or panics, ends the worker. It
    /// runs on the engine's thread, so it must not block or compute for long.
    fn background_task(&self, _worker: ConsumerContext) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// A shared consumer, to which its creator keeps access.
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
