//! Claim: when to look, what to look for, how much to take. Wake-ups are hints, polling is the
//! truth.

mod claimer;
mod lanes;
mod pace;
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
use crate::parts::gate::Passed;
use crate::parts::notifications::Notifications;
use crate::parts::queue::QueueState;
use crate::retry::Backoff;
use crate::store::{self, Unread};
pub(crate) use claimer::{Claimer, Dispatcher};
pub(crate) use lanes::Lanes;
use pace::Pace;
use pending::PendingClaim;
use read::Jobs;
use search::UnansweredClaim;
use unreadable::Unreadable;

/// A queue whose rate is used up is looked at again after this at the latest: the rate may be
/// changed meanwhile.
const LONGEST_LATER: Duration = Duration::from_secs(1);
/// And not before this, however often it is notified.
const SHORTEST_LATER: Duration = Duration::from_millis(50);
/// A claim never asks for more jobs than this: beyond it a batch gains nothing.
const LARGEST_CLAIM: usize = 5000;
/// After a claim that failed.
const AGAIN: Backoff = Backoff {
    base: Duration::from_millis(50),
    cap: Duration::from_millis(6_400),
};

/// Claims for one queue.
pub(crate) struct Fetcher {
    claimer: Arc<Claimer>,
    queue: Arc<QueueState>,
    config: Arc<Config>,
    notifications: Arc<Notifications>,
    /// Notified when the queue was and nothing was found there.
    missed: Arc<Notify>,
    /// How large claims may be.
    pace: Mutex<Pace>,
    /// The last claim was larger than its answer: the next one is expected to be so too.
    is_large: AtomicBool,
    /// Its last claim, where the answer was lost.
    lost: Mutex<Option<UnansweredClaim>>,
}

impl Fetcher {
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

    /// Claims for one queue until the engine stops.
    pub(crate) async fn run(self) {
        self.claim_until_stopped().await;
        self.give_back_lost();
    }

    async fn claim_until_stopped(&self) {
        let mut found_at = Instant::now();
        let mut was_woken = false;
        let mut failures = 0u32;
        let mut unreadable = Unreadable::default();
        while !self.claimer.stopping.is_cancelled() {
            let Some(passed) = self.claimer.gate.pass(&self.claimer.stopping).await else {
                return;
            };
            let room = self.queue.consumer.capacity().min(unreadable.limit());
            if room == 0 {
                drop(passed);
                // Told when jobs end; asked again all the same, because a wake-up is only a hint.
                let asked_again = tokio::time::sleep(Duration::from_millis(50));
                tokio::select! {
                    () = self.queue.room.notified() => {}
                    () = asked_again => {}
                    () = self.claimer.stopping.cancelled() => {}
                }
                continue;
            }
            let is_notified = self.queue.sleeper.is_on();
            self.queue.owed.asked();
            let claimed = self.find_or_claim(room, passed).await;
            if claimed.is_ok() {
                self.queue.owed.answered();
            }
            match claimed {
                Ok(ClaimResult::Jobs(0)) => {
                    failures = 0;
                    unreadable = Unreadable::default();
                    if was_woken {
                        self.queue.set_missed();
                        self.missed.notify_one();
                    }
                    was_woken = self.wait_while_idle(found_at.elapsed()).await;
                }
                Ok(ClaimResult::RateLimited(wait)) => {
                    failures = 0;
                    was_woken = false;
                    self.wait_for_rate_limit(wait.min(LONGEST_LATER)).await;
                }
                Ok(found @ (ClaimResult::Jobs(jobs) | ClaimResult::All(jobs))) => {
                    was_woken = false;
                    found_at = Instant::now();
                    failures = 0;
                    unreadable.passed(jobs);
                    // What was committed since notifies, as if this look had found nothing.
                    if is_notified && matches!(found, ClaimResult::All(_)) {
                        was_woken = self.wait_while_idle(Duration::ZERO).await;
                    }
                }
                Err(error) => {
                    failures += 1;
                    if self.recover(&error, room, failures, &mut unreadable).await {
                        failures = 0;
                    }
                }
            }
        }
    }

    /// Pauses while the queue's rate is used up. A change of the rate notifies; who enqueues
    /// meanwhile does so too, and is not to be asked for at each notification.
    async fn wait_for_rate_limit(&self, wait: Duration) {
        let woken = async {
            tokio::time::sleep(SHORTEST_LATER).await;
            self.queue.sleeper.woken.notified().await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = woken => {}
            () = self.claimer.stopping.cancelled() => {}
        }
    }

    /// Pauses after an empty look, `idle` after the last find; whether it was woken.
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

    /// Claims and hands the jobs to the queue's consumer. While a largest claim comes back whole
    /// there is more to be had, so the next one is on its way to the server while the jobs of the
    /// last are handed over.
    pub(crate) async fn claim<'a>(
        &'a self,
        room: usize,
        mut passed: Passed<'a>,
    ) -> Result<ClaimResult, Error> {
        let mut made = self.make(room).await?;
        let mut jobs = 0;
        let mut failed = None;
        while failed.is_none()
            && made.jobs() == LARGEST_CLAIM
            && !self.claimer.stopping.is_cancelled()
        {
            // Who holds the gate open for these must not wait at it for the next: a quarantined job
            // may wait in between.
            let room = self.queue.consumer.capacity();
            let room = room.saturating_sub(made.jobs()).min(LARGEST_CLAIM);
            let (LARGEST_CLAIM, Some(again)) = (room, self.claimer.gate.pass_again()) else {
                break;
            };
            let hand_over = async {
                // The claim is sent first.
                tokio::task::yield_now().await;
                self.hand_over(made)
            };
            let (next, found) = tokio::join!(self.make(room), hand_over);
            // The jobs of the last one were delivered, so quarantined jobs wait for them by now.
            passed = again;
            // What fails here keeps nobody from the next one, if that was answered.
            match found {
                Ok(found) => jobs += found.jobs(),
                Err(error) => failed = Some(error),
            }
            made = next?;
        }
        let found = self.hand_over(made);
        drop(passed);
        match (failed, found?) {
            (Some(error), _) => Err(error),
            (None, ClaimResult::Jobs(last)) => Ok(ClaimResult::Jobs(jobs + last)),
            (None, ClaimResult::All(last)) => Ok(ClaimResult::All(jobs + last)),
            (None, later) => Ok(later),
        }
    }

    async fn make(&self, room: usize) -> Result<AnsweredClaim<'_>, Error> {
        let sent = PendingClaim::new(&self.claimer).await?;
        let priorities = self.queue.priorities();
        let room = room.min(self.pace().limit(priorities.len()));
        let limit = i32::try_from(room).unwrap_or(i32::MAX);
        let begun = Instant::now();
        let request = store::Request {
            queue: &self.queue.name,
            priorities: &priorities,
            worker: sent.worker.id,
            token: sent.token,
            limit,
            bytes: self.config.claim_bytes,
            // Alone where the answer was too large for the connection: what stands must be known.
            reads_on: self.is_large.swap(false, Ordering::Relaxed),
        };
        let (rows, read) = match store::claim(&self.claimer.link, &request).await {
            Ok(claimed) => claimed,
            Err(error) => {
                self.claim_failed(sent, priorities, &error);
                return Err(error);
            }
        };
        let unread = Unread::of(&rows)?;
        self.is_large.store(!unread.is_empty(), Ordering::Relaxed);
        let read = match unread.is_empty() || !read.is_empty() {
            true => Ok(Jobs::of(read)),
            false => self.claimer.read(&sent, &unread).await,
        };
        match read {
            Ok(read) => {
                let is_short = unread.is_empty() && store::jobs_in(&rows) < room;
                let made = AnsweredClaim {
                    sent,
                    rows,
                    read,
                    is_short,
                };
                self.pace().took(room, made.jobs(), begun.elapsed());
                Ok(made)
            }
            Err(error) => {
                self.claim_unread(sent, priorities);
                Err(error)
            }
        }
    }

    /// Reads what was claimed and delivers it.
    fn hand_over(&self, made: AnsweredClaim<'_>) -> Result<ClaimResult, Error> {
        let mut claim = store::read_claim(&made.rows, &self.queue.name, made.sent.token)?;
        claim.extend(&made.read.rows, &self.queue.name, made.sent.token)?;
        claim.unreadable.extend(made.read.unreadable);
        let found = claim.jobs.len() + claim.unreadable.len();
        let again = claim.again;
        made.sent.hand_out(&self.queue, claim);
        Ok(match again {
            Some(wait) if found == 0 && !wait.is_zero() => ClaimResult::RateLimited(wait),
            // No pause, whatever was handed out.
            Some(_) => ClaimResult::Jobs(found.max(1)),
            None if found > 0 && made.is_short => ClaimResult::All(found),
            None => ClaimResult::Jobs(found),
        })
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock()
    }
}

/// What a claim brought.
#[derive(Debug)]
pub(crate) enum ClaimResult {
    /// This many jobs; none counts as one when more is to follow at once.
    Jobs(usize),
    /// This many jobs, and nothing else was there.
    All(usize),
    /// None, and there will be none before this is over: the queue's rate is used up.
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

/// A claim that was answered, to be handed over.
struct AnsweredClaim<'a> {
    sent: PendingClaim<'a>,
    /// What it answered.
    rows: Vec<tokio_postgres::Row>,
    /// What its answer had no room for.
    read: Jobs,
    /// It brought fewer than it asked for, all in its answer.
    is_short: bool,
}

impl AnsweredClaim<'_> {
    fn jobs(&self) -> usize {
        store::jobs_in(&self.rows) + self.read.len()
    }
}
