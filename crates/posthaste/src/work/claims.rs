//! Whole claims of a queue, for a program that takes them when it is ready.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::QueueConfig;
use crate::consumer::{Consumer, Delivery, Outcome, Ticket};
use crate::handler::{self, HandlerError};
use crate::job::{Job, JobId};
use crate::retry::{Backoff, RunResult};

/// The longest time that an expired job, or one whose worker died, waits for the program.
const MAX_UNTAKEN_TIME: Duration = Duration::from_secs(1);
/// A program that asked for a claim within this time is expected to ask for the next.
const ASK_AGAIN_TIME: Duration = Duration::from_secs(10);

/// The claims of one queue; [`WorkerBuilder::claims`](crate::WorkerBuilder::claims) creates it.
///
/// One claim more than those that the program holds is fetched ahead; jobs that are not taken
/// within the queue's timeout are given back. Dropping it gives back the jobs that were not taken,
/// and the worker claims no more jobs of the queue.
pub struct Claims(Arc<ClaimInbox>);

impl Claims {
    /// Waits for the next claim, which has at least one job and at most as many as the queue's
    /// concurrency. Returns `None` when the worker was asked to stop: finish the jobs you hold
    /// within its grace period.
    pub async fn next(&mut self) -> Option<Claim> {
        let _asking = AskingGuard::new(&self.0);
        loop {
            let arrived = self.0.arrived.notified();
            if self.0.stopping.is_cancelled() {
                return None;
            }
            if let Some(claim) = self.0.take() {
                self.0.room.notify_one();
                return Some(claim);
            }
            tokio::select! { () = arrived => {}, () = self.0.stopping.cancelled() => return None }
        }
    }
}

/// The program waits for a claim while this exists.
struct AskingGuard<'a>(&'a ClaimInbox);

impl<'a> AskingGuard<'a> {
    fn new(inbox: &'a ClaimInbox) -> Self {
        *inbox.last_ask() = LastAsk::Now;
        Self(inbox)
    }
}

impl Drop for AskingGuard<'_> {
    fn drop(&mut self) {
        *self.0.last_ask() = LastAsk::Last(Instant::now());
    }
}

/// When the program last asked for a claim.
enum LastAsk {
    Never,
    Now,
    Last(Instant),
}

impl Drop for Claims {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = &self.0.config.name;
        f.debug_tuple("Claims").field(queue).finish()
    }
}

/// Jobs that were claimed together. A job that is dropped without an outcome counts as a run that
/// panicked.
#[derive(Debug)]
pub struct Claim(Vec<ClaimedJob>);

impl Claim {
    /// Returns the jobs that have no outcome yet, in the order of the claim.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.0.iter().map(ClaimedJob::job)
    }

    /// Completes all jobs.
    pub fn complete(self) {
        self.into_iter().for_each(|job| job.settle(Outcome::Done));
    }

    /// Fails all jobs, as when a handler returns this error.
    pub fn fail(self, error: impl Into<HandlerError> + 'static) {
        let result = handler::failure(handler::into_handler_error(error));
        self.into_iter().for_each(|job| job.record(result.clone()));
    }

    /// Records the outcome of one job; the others remain. Returns false if the claim does not
    /// contain it.
    pub fn settle(&mut self, id: JobId, outcome: Outcome) -> bool {
        let Some(at) = self.0.iter().position(|job| job.job().id == id) else {
            return false;
        };
        self.0.remove(at).settle(outcome);
        true
    }
}

impl IntoIterator for Claim {
    type Item = ClaimedJob;
    type IntoIter = std::vec::IntoIter<ClaimedJob>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A job of a [`Claim`], whose holder reports the outcome.
///
/// When its timeout has passed, or the worker has ended, the job is taken back. Outcomes that are
/// reported later have no effect.
pub struct ClaimedJob(Arc<HeldJob>);

impl fmt::Debug for ClaimedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClaimedJob").field(self.job()).finish()
    }
}

impl ClaimedJob {
    /// Returns the job.
    pub fn job(&self) -> &Job {
        &self.0.job
    }

    /// Returns the id by which an external receiver drops duplicates: the same at each attempt,
    /// `posthaste.delivery_id(id)` in SQL.
    pub fn delivery_id(&self) -> Uuid {
        self.0.delivery_id
    }

    /// Returns whether the job was cancelled: stop its work and [give it back](Self::give_back), or
    /// report the outcome if it is done.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// Records the outcome of the job.
    pub fn settle(self, outcome: Outcome) {
        self.record(RunResult::Returned(outcome));
    }

    /// Fails the attempt, as when a handler returns this error.
    pub fn fail(self, error: impl Into<HandlerError> + 'static) {
        self.record(handler::failure(handler::into_handler_error(error)));
    }

    /// Gives the job back without counting an attempt. A cancelled job ends as cancelled.
    pub fn give_back(self) {
        self.record(RunResult::GivenBack);
    }

    /// Has no effect if the worker has taken the job back: it ran for too long, or the worker
    /// ended.
    fn record(self, result: RunResult) {
        let Some(ticket) = self.0.take() else {
            return;
        };
        ticket.record(result.unless_cancelled(self.is_cancelled()));
    }
}

impl Drop for ClaimedJob {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// A job that the program holds. The holder of its ticket reports its outcome.
struct HeldJob {
    job: Arc<Job>,
    delivery_id: Uuid,
    since: Instant,
    is_cancelled: AtomicBool,
    ticket: Mutex<Option<Ticket>>,
}

impl HeldJob {
    fn new(delivery: Delivery) -> Self {
        Self {
            job: delivery.job,
            delivery_id: delivery.ticket.delivery_id(),
            since: Instant::now(),
            is_cancelled: AtomicBool::new(false),
            ticket: Mutex::new(Some(delivery.ticket)),
        }
    }

    fn take(&self) -> Option<Ticket> {
        self.ticket.lock().take()
    }

    fn end(&self, result: RunResult) {
        if let Some(ticket) = self.take() {
            ticket.record(result);
        }
    }
}

/// The queue of claims that wait for the program; the consumer of [`Claims`].
pub(crate) struct ClaimInbox {
    config: QueueConfig,
    waiting: Mutex<Vec<Delivery>>,
    held: Mutex<Vec<Weak<HeldJob>>>,
    arrived: Notify,
    asked: Mutex<LastAsk>,
    /// Notified when there is room for the next claim.
    room: Arc<Notify>,
    stopping: CancellationToken,
}

impl ClaimInbox {
    pub(crate) fn new(config: QueueConfig) -> (Arc<Self>, Claims) {
        let inbox = Arc::new(Self {
            config,
            waiting: Mutex::default(),
            held: Mutex::default(),
            arrived: Notify::new(),
            asked: Mutex::new(LastAsk::Never),
            room: Arc::default(),
            stopping: CancellationToken::new(),
        });
        (Arc::clone(&inbox), Claims(inbox))
    }

    fn last_ask(&self) -> MutexGuard<'_, LastAsk> {
        self.asked.lock()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.waiting.lock()
    }

    fn take(&self) -> Option<Claim> {
        let waiting = std::mem::take(&mut *self.waiting());
        let begun = waiting.into_iter().filter_map(Delivery::begin);
        let taken: Vec<Arc<HeldJob>> = begun.map(HeldJob::new).map(Arc::new).collect();
        if taken.is_empty() {
            return None;
        }
        let mut held = self.held.lock();
        held.retain(|one| one.strong_count() > 0);
        held.extend(taken.iter().map(Arc::downgrade));
        Some(Claim(taken.into_iter().map(ClaimedJob).collect()))
    }

    /// Returns the jobs that the program holds.
    fn held(&self) -> Vec<Arc<HeldJob>> {
        let held = self.held.lock();
        held.iter().filter_map(Weak::upgrade).collect()
    }

    fn give_back(&self) {
        self.stopping.cancel();
        self.give_back_matching(|_| true);
    }

    fn give_back_matching(&self, matches: impl Fn(&Delivery) -> bool) {
        let given: Vec<Delivery> = {
            let mut waiting = self.waiting();
            waiting.extract_if(.., |one| matches(one)).collect()
        };
        given.into_iter().for_each(|one| one.ticket.give_back());
    }
}

/// The engine's end of an inbox. Dropping it ends the claims.
pub(crate) struct InboxIntake(pub(crate) Arc<ClaimInbox>);

impl Drop for InboxIntake {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Consumer for InboxIntake {
    fn capacity(&self) -> usize {
        if self.0.stopping.is_cancelled() {
            return 0;
        }
        self.0
            .config
            .concurrency
            .saturating_sub(self.0.waiting().len())
    }

    fn consume(&self, claim: Vec<Delivery>) {
        self.0.waiting().extend(claim);
        self.0.arrived.notify_one();
        if self.0.stopping.is_cancelled() {
            self.0.give_back();
        }
    }

    fn give_back(&self) {
        self.0.give_back();
    }

    fn abort(&self) {
        self.0.give_back();
        let held = self.0.held();
        held.iter().for_each(|one| one.end(RunResult::GivenBack));
    }

    fn watch(&self) {
        let timeout = self.0.config.timeout;
        let held = self.0.held();
        let overdue = held.iter().filter(|one| one.since.elapsed() > timeout);
        overdue.for_each(|one| one.end(RunResult::TimedOut(timeout)));
        let now = Timestamp::now();
        self.0.give_back_matching(|one| {
            let waited = one.ticket.began.elapsed();
            // A job whose worker died keeps all claims of this process waiting.
            let is_urgent = one.job.crashes > 0 || one.job.expires_at <= now;
            waited > timeout || (waited > MAX_UNTAKEN_TIME && is_urgent)
        });
    }

    fn cancel(&self, jobs: &[JobId]) {
        let cancelled: Vec<Delivery> = {
            let mut waiting = self.0.waiting();
            waiting
                .extract_if(.., |one| jobs.contains(&one.job.id))
                .collect()
        };
        cancelled.into_iter().for_each(|one| one.ticket.cancel());
        let held = self.0.held();
        let cancelled = held.iter().filter(|one| jobs.contains(&one.job.id));
        cancelled.for_each(|one| one.is_cancelled.store(true, Ordering::SeqCst));
    }

    fn limit(&self) -> Option<Duration> {
        Some(self.0.config.timeout)
    }

    fn takes_quarantined(&self) -> bool {
        let comes_back = match *self.0.last_ask() {
            LastAsk::Never => false,
            LastAsk::Now => true,
            LastAsk::Last(at) => at.elapsed() < ASK_AGAIN_TIME,
        };
        comes_back && !self.0.stopping.is_cancelled()
    }

    fn backoff(&self) -> Backoff {
        self.0.config.backoff
    }

    fn room(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.0.room))
    }
}
