//! Acknowledge: writes outcomes to the store in batches, each with its fence, until it answers.

mod closing;
mod handed_back;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::consumer::Settled;
use crate::error::Error;
use crate::job::JobId;
use crate::log_limit::{FEW, LogLimit};
use crate::metrics::{self, RunHistograms};
use crate::parts::notifications::Notifications;
use crate::parts::outstanding::Outstanding;
use crate::parts::queue::Queues;
use crate::parts::watched::TaskSupervisor;
use crate::retry::{Backoff, Disposition};
use crate::stats::Stats;
use crate::store::reconnecting::ReconnectingClient;
use crate::store::{self, Fence};
use closing::ClosingMethod;
use handed_back::ReturnCounts;

/// Delay before a failed acknowledgement is sent again.
const RETRY_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(20),
    cap: Duration::from_millis(10_240),
};
/// Time that an incomplete batch waits for the outcome of its next job.
const BATCH_WAIT: Duration = Duration::from_millis(10);
/// Total time that an incomplete batch waits, several times what a batch should run: closing a
/// batch in parts costs ten times as much.
const MAX_BATCH_WAIT: Duration = Duration::from_millis(100);
/// The least time between two statements that close whole batches: together they cost a fraction of
/// what they cost alone, and consumers do not wait for them. After a crash, jobs that were done in
/// this time run again.
const MIN_CLOSE_INTERVAL: Duration = Duration::from_millis(10);
/// The least time between two collections of outcomes while batches are incomplete: consumers need
/// not wake this task for each outcome.
const MIN_COLLECT_INTERVAL: Duration = Duration::from_millis(1);
/// The most batches closed as a whole in one transaction, which holds a lock for each.
const MAX_BATCHES_PER_CLOSE: usize = 500;
/// The most outcomes taken from the channel at once.
const MAX_OUTCOMES_PER_RECEIVE: usize = 4096;

/// Writes the outcomes of all queues to the database.
pub(crate) struct Completer {
    pub(crate) link: ReconnectingClient,
    /// The connection for jobs that could not be settled with their batch; opened on demand.
    pub(crate) repeats: ReconnectingClient,
    pub(crate) queues: Queues,
    pub(crate) in_hand: Arc<Outstanding>,
    pub(crate) stats: Arc<Stats>,
    /// Learns how long commits take.
    pub(crate) notifications: Arc<Notifications>,
    /// The measurements of how long jobs waited and ran.
    pub(crate) runs: RunHistograms,
    pub(crate) watched: TaskSupervisor,
    /// Cancelled when the shutdown deadline has passed: nothing is retried after it.
    pub(crate) hopeless: CancellationToken,
}

impl Completer {
    /// Settles outcomes until the channel closes.
    pub(crate) async fn run(self: Arc<Self>, mut settled: UnboundedReceiver<Settled>) {
        let mut waiting: HashMap<Fence, WaitingBatch> = HashMap::new();
        let mut handed_back = ReturnCounts::default();
        let mut taken = Vec::with_capacity(MAX_OUTCOMES_PER_RECEIVE);
        let mut close_at = Instant::now();
        loop {
            let next = waiting.values().map(|one| one.due_at(close_at)).min();
            let until = next.unwrap_or_else(|| Instant::now() + BATCH_WAIT);
            tokio::select! {
                biased;
                count = settled.recv_many(&mut taken, MAX_OUTCOMES_PER_RECEIVE) => {
                    if count == 0 {
                        self.flush(waiting.drain().map(|(_, one)| one.jobs).collect()).await;
                        return;
                    }
                }
                () = tokio::time::sleep_until(until), if next.is_some() => {}
            }
            // Consumers may have room before the jobs are settled.
            self.queues.iter().for_each(|queue| queue.room.notify_one());
            let now = Instant::now();
            for mut one in taken.drain(..) {
                handed_back.delay_repeated(&mut one, Timestamp::now, fastrand::f64);
                let entry = waiting
                    .entry(one.batch.fence)
                    .or_insert_with(|| WaitingBatch {
                        since: now,
                        last: now,
                        jobs: Vec::new(),
                        method: None,
                    });
                entry.push(one, now);
            }
            let ripe: Vec<Fence> = waiting
                .iter()
                .filter(|(_, one)| one.due_at(close_at) <= now)
                .map(|(fence, _)| *fence)
                .collect();
            let ripe: Vec<_> = ripe
                .iter()
                .filter_map(|fence| waiting.remove(fence))
                .collect();
            if ripe.is_empty() {
                tokio::time::sleep(MIN_COLLECT_INTERVAL).await;
                continue;
            }
            if ripe.iter().any(WaitingBatch::is_plain) {
                close_at = now + MIN_CLOSE_INTERVAL;
            }
            self.flush(ripe.into_iter().map(|one| one.jobs).collect())
                .await;
        }
    }

    async fn flush(self: &Arc<Self>, batches: Vec<Vec<Settled>>) {
        let mut plain = Vec::new();
        let mut later = Vec::new();
        let mut mixed = Vec::new();
        for jobs in batches {
            match ClosingMethod::for_jobs(&jobs) {
                ClosingMethod::Whole => plain.push(jobs),
                ClosingMethod::Reschedule { after, error } => later.push((jobs, after, error)),
                ClosingMethod::JobByJob => mixed.push(jobs),
            }
        }
        while !plain.is_empty() {
            let rest = plain.split_off(plain.len().min(MAX_BATCHES_PER_CLOSE));
            self.close_batches(plain).await;
            plain = rest;
        }
        // Batches that are done go first: the others write a row for each job.
        for (jobs, after, error) in later {
            self.reschedule(jobs, after, error).await;
        }
        for jobs in mixed {
            self.settle(jobs, false).await;
        }
    }

    /// Closes batches as a whole, and job by job if that is impossible.
    async fn close_batches(self: &Arc<Self>, batches: Vec<Vec<Settled>>) {
        let size = |jobs: &Vec<Settled>| i32::try_from(jobs.len()).unwrap_or(i32::MAX);
        let closes: Vec<(Fence, i32)> = batches
            .iter()
            .map(|jobs| (jobs[0].batch.fence, size(jobs)))
            .collect();
        let begun = Instant::now();
        match store::close_batches(&self.link, &closes).await {
            Ok(left) => {
                self.notifications.record_commit(begun.elapsed());
                for (at, jobs) in batches.into_iter().enumerate() {
                    if left.contains(&at) {
                        self.settle(jobs, false).await;
                    } else {
                        self.count_outcomes(&jobs, None);
                        self.in_hand.record_settled(jobs.len());
                    }
                }
            }
            Err(error) => {
                // Without an answer the batches may be closed already: settling job by job closes
                // them or finds them closed.
                tracing::debug!(%error, "whole batches could not be acknowledged at once");
                for jobs in batches {
                    self.settle(jobs, true).await;
                }
            }
        }
    }

    /// Reschedules a whole batch, or job by job if that is impossible.
    async fn reschedule(
        self: &Arc<Self>,
        jobs: Vec<Settled>,
        after: Duration,
        error: Option<String>,
    ) {
        let size = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
        let (link, fence) = (&self.link, jobs[0].batch.fence);
        match store::reschedule(link, fence, size, after, error.as_deref()).await {
            Ok(true) => {
                self.count_outcomes(&jobs, None);
                self.in_hand.record_settled(jobs.len());
            }
            Ok(false) => self.settle(jobs, false).await,
            Err(error) => {
                // As in `close_batches`.
                tracing::debug!(%error, "a whole batch could not be rescheduled at once");
                self.settle(jobs, true).await;
            }
        }
    }

    /// Settles the jobs of one batch, and retries until there is an answer: a repeated
    /// acknowledgement finds its jobs closed and changes nothing. If the server refuses the batch,
    /// because another open transaction is closing one of the jobs or because of the contents of
    /// one outcome, each job is settled alone, so that a refused one delays only itself.
    async fn settle(self: &Arc<Self>, jobs: Vec<Settled>, mut repeated: bool) {
        let mut failures = 0u32;
        loop {
            let link = &self.link;
            match store::settle(link, jobs[0].batch.fence, &outcomes(&jobs)).await {
                Ok(ours) => {
                    let ours = ours.into_iter().collect();
                    log_answers(&jobs, &ours, repeated);
                    self.count_outcomes(&jobs, Some(&ours));
                    break;
                }
                Err(error) if self.hopeless.is_cancelled() => {
                    give_up(&jobs, &error);
                    break;
                }
                Err(error) if !error.is_connection() => {
                    tracing::debug!(
                        %error, jobs = jobs.len(),
                        "an acknowledgement was refused; its jobs are settled one by one"
                    );
                    self.in_hand.set_aside(jobs.len());
                    for job in jobs {
                        let alone = Arc::clone(self).settle_alone(job, repeated);
                        tokio::spawn(self.watched.guarded("acknowledge alone", alone));
                    }
                    return;
                }
                Err(error) => {
                    repeated = true;
                    failures += 1;
                    if failures.is_power_of_two() {
                        tracing::warn!(
                            %error, failures,
                            "an acknowledgement failed; it is tried again"
                        );
                    }
                    tokio::time::sleep(RETRY_BACKOFF.after(failures, fastrand::f64())).await;
                }
            }
        }
        self.in_hand.record_settled(jobs.len());
    }

    /// Settles one job that could not be settled with its batch. It uses a separate connection,
    /// because waiting for a lock would block the one that the others need.
    async fn settle_alone(self: Arc<Self>, job: Settled, mut repeated: bool) {
        let jobs = [job];
        let mut failures = 0u32;
        loop {
            match store::settle(&self.repeats, jobs[0].batch.fence, &outcomes(&jobs)).await {
                Ok(ours) => {
                    let ours = ours.into_iter().collect();
                    log_answers(&jobs, &ours, repeated);
                    self.count_outcomes(&jobs, Some(&ours));
                    break;
                }
                Err(error) if self.hopeless.is_cancelled() => {
                    give_up(&jobs, &error);
                    break;
                }
                Err(error) => {
                    failures += 1;
                    repeated |= !error.is_rollback();
                    if is_transient(&error) {
                        tracing::debug!(%error, failures, "an acknowledgement failed again");
                    } else if failures.is_power_of_two() {
                        tracing::error!(
                            job = jobs[0].id.0, %error, failures,
                            "an outcome was refused; it is tried again"
                        );
                    }
                    tokio::time::sleep(RETRY_BACKOFF.after(failures, fastrand::f64())).await;
                }
            }
        }
        self.in_hand.settled_aside(1);
    }

    /// Counts the outcomes of jobs that are closed for good: all of them, or those in `ours`. A job
    /// that its handler's transaction completed is not in `ours`, and counts as done.
    fn count_outcomes(&self, jobs: &[Settled], ours: Option<&HashSet<i64>>) {
        let closed = || {
            jobs.iter().filter_map(|one| {
                let job = one.job.as_deref()?;
                match ours.is_none_or(|ours| ours.contains(&one.id.0)) {
                    true => Some((job, &one.disposition, one.took)),
                    false if one.may_be_completed => Some((job, &Disposition::Done, one.took)),
                    false => None,
                }
            })
        };
        let now = metrics::read_both_clocks();
        self.stats.add(closed(), now);
        let runs = closed().filter_map(|(job, disposition, took)| {
            Some((job, took, metrics::outcome_label(job, disposition)?))
        });
        self.runs.add(runs, now);
    }
}

/// The outcomes of one batch that waits for its other jobs, or to be closed with other batches.
struct WaitingBatch {
    /// When the first outcome came.
    since: Instant,
    /// When the last outcome came.
    last: Instant,
    jobs: Vec<Settled>,
    /// How it is closed; `None`: outcomes are missing.
    method: Option<ClosingMethod>,
}

impl WaitingBatch {
    fn push(&mut self, one: Settled, now: Instant) {
        let jobs = one.batch.jobs;
        self.last = now;
        self.jobs.push(one);
        if jobs == self.jobs.len() {
            self.method = Some(ClosingMethod::for_jobs(&self.jobs));
        }
    }

    /// Returns when it is closed if no other outcome comes. Batches that one statement closes with
    /// others wait for `close_at`.
    fn due_at(&self, close_at: Instant) -> Instant {
        match self.method {
            Some(ClosingMethod::Whole) => close_at,
            Some(_) => self.since,
            None => (self.last + BATCH_WAIT).min(self.since + MAX_BATCH_WAIT),
        }
    }

    fn is_plain(&self) -> bool {
        self.method == Some(ClosingMethod::Whole)
    }
}

fn outcomes(jobs: &[Settled]) -> Vec<(JobId, &Disposition)> {
    jobs.iter().map(|one| (one.id, &one.disposition)).collect()
}

static GIVEN_UP_LOG: LogLimit = LogLimit::new(FEW);
static LATE_LOG: LogLimit = LogLimit::new(FEW);

fn give_up(jobs: &[Settled], error: &Error) {
    if let Some(left_out) = GIVEN_UP_LOG.admit_field("") {
        tracing::error!(
            %error, jobs = jobs.len(), job = jobs[0].id.0, left_out,
            "jobs could not be acknowledged; they will be rescued and run again"
        );
    }
}

/// Whether the same statement may succeed later: lost connections, servers that restart or are
/// read-only, locks, serialization.
fn is_transient(error: &Error) -> bool {
    let state = error.sqlstate();
    let class = state.and_then(|state| state.code().get(..2));
    let passes = matches!(class, Some("25" | "40" | "53" | "55" | "57" | "58"));
    error.is_connection() || passes
}

/// Logs what only the database's answer shows: rollbacks of the handler, and lost jobs.
fn log_answers(jobs: &[Settled], ours: &HashSet<i64>, repeated: bool) {
    let ours_still = jobs.iter().filter(|one| ours.contains(&one.id.0));
    ours_still.for_each(Settled::log_if_rolled_back);
    // A job that the handler's own transaction completed, or that is given back, is not lost.
    let is_well = |one: &Settled| one.may_be_completed || one.disposition == Disposition::GiveBack;
    let lost = jobs
        .iter()
        .filter(|one| !is_well(one) && !ours.contains(&one.id.0));
    let lost: Vec<i64> = lost.map(|one| one.id.0).collect();
    let Some(job) = lost.first().filter(|_| !repeated) else {
        return;
    };
    if let Some(left_out) = LATE_LOG.admit_field("") {
        tracing::warn!(
            jobs = lost.len(),
            job,
            left_out,
            "outcomes came too late: these jobs had been taken over"
        );
    }
}
