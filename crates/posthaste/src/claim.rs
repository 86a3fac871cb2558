//! Claim: decides when to poll a queue, in which lanes, and how many jobs to claim. Wake-ups are
//! hints; only a poll shows the state of a queue.

mod claim_size;
mod claimer;
mod lanes;
mod pending;
pub(crate) mod quarantine;
mod read;
mod search;
pub(crate) mod unanswered;
mod unreadable;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::Config;
use crate::error::Error;
use crate::parts::gate::GatePass;
use crate::parts::notifications::Notifications;
use crate::parts::queue::QueueState;
use crate::retry::Backoff;
use crate::store::{self, UnreadBatches};
use claim_size::ClaimSize;
pub(crate) use claimer::{Claimer, Dispatcher};
pub(crate) use lanes::LaneSearch;
use pending::PendingClaim;
use read::ReadJobs;
use search::UnansweredClaim;
use unreadable::UnreadableSearch;

/// The longest pause of a queue whose rate is used up: the rate may be changed during it.
const MAX_RATE_PAUSE: Duration = Duration::from_secs(1);
/// The shortest such pause, regardless of notifications.
const MIN_RATE_PAUSE: Duration = Duration::from_millis(50);
/// The most jobs of one claim: larger batches gain nothing.
const MAX_CLAIM_JOBS: usize = 5000;
/// Delay before a failed claim is repeated.
const RETRY_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(50),
    cap: Duration::from_millis(6_400),
};

/// Claims for one queue.
pub(crate) struct QueueClaimer {
    claimer: Arc<Claimer>,
    queue: Arc<QueueState>,
    config: Arc<Config>,
    notifications: Arc<Notifications>,
    /// Notified when a notified queue turned out to have no jobs in the known lanes.
    missed: Arc<Notify>,
    /// The current size limit of claims.
    pace: Mutex<ClaimSize>,
    /// The last claim was larger than its answer could hold: the same is expected of the next one.
    is_large: AtomicBool,
    /// The last claim, if its answer was lost.
    lost: Mutex<Option<UnansweredClaim>>,
}

impl QueueClaimer {
    pub(crate) fn new(
        claimer: &Arc<Claimer>,
        queue: &Arc<QueueState>,
        config: &Arc<Config>,
        notifications: &Arc<Notifications>,
        missed: &Arc<Notify>,
    ) -> Self {
        Self {
            claimer: Arc::clone(claimer),
            queue: Arc::clone(queue),
            config: Arc::clone(config),
            notifications: Arc::clone(notifications),
            missed: Arc::clone(missed),
            pace: Mutex::default(),
            is_large: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// Claims for one queue until the engine stops, then gives back a claim without an answer.
    pub(crate) async fn run(self) {
        self.claim_until_stopped().await;
        self.give_back_lost();
    }

    async fn claim_until_stopped(&self) {
        let mut found_at = Instant::now();
        let mut was_woken = false;
        let mut failures = 0u32;
        let mut unreadable = UnreadableSearch::default();
        while !self.claimer.stopping.is_cancelled() {
            let Some(passed) = self.claimer.gate.pass(&self.claimer.stopping).await else {
                return;
            };
            let room = self.queue.consumer.capacity().min(unreadable.limit());
            if room == 0 {
                drop(passed);
                // Notified when a job ends. Wake-ups are hints, so poll as well.
                let asked_again = tokio::time::sleep(Duration::from_millis(50));
                tokio::select! {
                    () = self.queue.room.notified() => {}
                    () = asked_again => {}
                    () = self.claimer.stopping.cancelled() => {}
                }
                continue;
            }
            let is_notified = self.queue.sleeper.is_on();
            self.queue.owed.record_request();
            let claimed = self.find_or_claim(room, passed).await;
            if claimed.is_ok() {
                self.queue.owed.record_answer();
            }
            match claimed {
                Ok(ClaimResult::Jobs(0)) => {
                    failures = 0;
                    unreadable = UnreadableSearch::default();
                    if was_woken {
                        self.queue.set_missed();
                        self.missed.notify_one();
                    }
                    was_woken = self.wait_while_idle(found_at.elapsed()).await;
                }
                Ok(ClaimResult::RateLimited(wait)) => {
                    failures = 0;
                    was_woken = false;
                    self.wait_for_rate_limit(wait.min(MAX_RATE_PAUSE)).await;
                }
                Ok(found @ (ClaimResult::Jobs(jobs) | ClaimResult::All(jobs))) => {
                    was_woken = false;
                    found_at = Instant::now();
                    failures = 0;
                    unreadable.record_success(jobs);
                    // Jobs committed since then notify, as they do after an empty poll.
                    if is_notified && matches!(found, ClaimResult::All(_)) {
                        was_woken = self.wait_while_idle(Duration::ZERO).await;
                    }
                }
                Err(error) => {
                    failures += 1;
                    if self
                        .end_unreadable_or_wait(&error, room, failures, &mut unreadable)
                        .await
                    {
                        failures = 0;
                    }
                }
            }
        }
    }

    /// Pauses while the queue's rate is used up. A changed rate notifies, but so does each enqueue,
    /// so there is at least `MIN_RATE_PAUSE` between two polls.
    async fn wait_for_rate_limit(&self, wait: Duration) {
        let woken = async {
            tokio::time::sleep(MIN_RATE_PAUSE).await;
            self.queue.sleeper.woken.notified().await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = woken => {}
            () = self.claimer.stopping.cancelled() => {}
        }
    }

    /// Pauses after an empty poll, `idle` after jobs were last found; returns whether it was woken.
    async fn wait_while_idle(&self, idle: Duration) -> bool {
        let longest = self.config.poll_interval;
        let pause = self.notifications.pause(&self.queue.sleeper, idle, longest);
        let over = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        self.queue.set_sleeping(pause.is_none());
        let woken = tokio::select! {
            () = self.queue.sleeper.woken.notified() => true,
            () = over => false,
            () = self.claimer.stopping.cancelled() => false,
        };
        self.queue.set_sleeping(false);
        woken
    }

    /// Claims jobs and delivers them to the queue's consumer. A largest claim that is answered in
    /// full shows that more jobs wait, so the next claim is sent to the server while the jobs of
    /// the last one are delivered.
    pub(crate) async fn claim<'a>(
        &'a self,
        room: usize,
        mut passed: GatePass<'a>,
    ) -> Result<ClaimResult, Error> {
        let mut made = self.send_claim(room).await?;
        let mut jobs = 0;
        let mut failed = None;
        while failed.is_none()
            && made.jobs() == MAX_CLAIM_JOBS
            && !self.claimer.stopping.is_cancelled()
        {
            // The next claim must not wait at the gate while this one holds it open: a quarantined
            // job may be waiting between the two, which would be a deadlock.
            let room = self.queue.consumer.capacity();
            let room = room.saturating_sub(made.jobs()).min(MAX_CLAIM_JOBS);
            let (MAX_CLAIM_JOBS, Some(again)) = (room, self.claimer.gate.pass_again()) else {
                break;
            };
            let hand_over = async {
                // Lets the claim be sent first.
                tokio::task::yield_now().await;
                self.deliver_claim(made)
            };
            let (next, found) = tokio::join!(self.send_claim(room), hand_over);
            // The jobs of the last claim were delivered, so quarantined jobs wait for them from now
            // on.
            passed = again;
            // An error here does not discard the next claim if that was answered.
            match found {
                Ok(found) => jobs += found.jobs(),
                Err(error) => failed = Some(error),
            }
            made = next?;
        }
        let found = self.deliver_claim(made);
        drop(passed);
        match (failed, found?) {
            (Some(error), _) => Err(error),
            (None, ClaimResult::Jobs(last)) => Ok(ClaimResult::Jobs(jobs + last)),
            (None, ClaimResult::All(last)) => Ok(ClaimResult::All(jobs + last)),
            (None, later) => Ok(later),
        }
    }

    async fn send_claim(&self, room: usize) -> Result<AnsweredClaim<'_>, Error> {
        let sent = PendingClaim::new(&self.claimer).await?;
        let priorities = self.queue.priorities();
        let room = room.min(self.claim_size().limit(priorities.len()));
        let limit = i32::try_from(room).unwrap_or(i32::MAX);
        let begun = Instant::now();
        let request = store::ClaimRequest {
            queue: &self.queue.name,
            priorities: &priorities,
            worker: sent.worker.id,
            token: sent.token,
            limit,
            bytes: self.config.claim_bytes,
            // Reset here: if this answer is too large for the connection, the next claim is made
            // without reading, so that its batches are known.
            reads_on: self.is_large.swap(false, Ordering::Relaxed),
        };
        let (rows, read) = match store::claim(&self.claimer.link, &request).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.claim_failed(sent, priorities, &error);
                return Err(error);
            }
        };
        let unread = UnreadBatches::from_rows(&rows)?;
        self.is_large.store(!unread.is_empty(), Ordering::Relaxed);
        let read = match unread.is_empty() || !read.is_empty() {
            true => Ok(ReadJobs::complete(read)),
            false => self.claimer.read(&sent, &unread).await,
        };
        match read {
            Ok(read) => {
                let is_short = unread.is_empty() && store::count_jobs(&rows) < room;
                let made = AnsweredClaim {
                    sent,
                    rows,
                    read,
                    is_short,
                };
                self.claim_size()
                    .record_claim(room, made.jobs(), begun.elapsed());
                Ok(made)
            }
            Err(error) => {
                self.claim_unread(sent, priorities);
                Err(error)
            }
        }
    }

    /// Reads the jobs of an answered claim and delivers them.
    fn deliver_claim(&self, made: AnsweredClaim<'_>) -> Result<ClaimResult, Error> {
        let mut claim = store::read_claim(&made.rows, &self.queue.name, made.sent.token)?;
        claim.extend(&made.read.rows, &self.queue.name, made.sent.token)?;
        claim.unreadable.extend(made.read.unreadable);
        let found = claim.jobs.len() + claim.unreadable.len();
        let again = claim.again;
        made.sent.deliver(&self.queue, claim);
        Ok(match again {
            Some(wait) if found == 0 && !wait.is_zero() => ClaimResult::RateLimited(wait),
            // No pause, regardless of how many jobs were delivered.
            Some(_) => ClaimResult::Jobs(found.max(1)),
            None if found > 0 && made.is_short => ClaimResult::All(found),
            None => ClaimResult::Jobs(found),
        })
    }

    fn claim_size(&self) -> MutexGuard<'_, ClaimSize> {
        self.pace.lock()
    }
}

/// The result of a claim.
#[derive(Debug)]
pub(crate) enum ClaimResult {
    /// This many jobs; 1 also stands for none if the next claim follows at once.
    Jobs(usize),
    /// This many jobs, and no more were available.
    All(usize),
    /// No jobs, and none before this time has passed: the queue's rate is used up.
    RateLimited(Duration),
}

impl ClaimResult {
    fn jobs(&self) -> usize {
        match self {
            Self::Jobs(jobs) | Self::All(jobs) => *jobs,
            Self::RateLimited(_) => 0,
        }
    }
}

/// A claim that was answered and whose jobs are not delivered yet.
struct AnsweredClaim<'a> {
    sent: PendingClaim<'a>,
    /// The rows of the answer.
    rows: Vec<tokio_postgres::Row>,
    /// The jobs that the answer had no room for.
    read: ReadJobs,
    /// Whether it brought fewer jobs than requested, all of them in the answer.
    is_short: bool,
}

impl AnsweredClaim<'_> {
    fn jobs(&self) -> usize {
        store::count_jobs(&self.rows) + self.read.len()
    }
}
