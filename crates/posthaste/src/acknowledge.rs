//! 5. Acknowledge: outcomes go back to the store in batches, each with its fence, and again until they are answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use crate::engine::{Engine, Identity};
use crate::error::Error;
use crate::job::{Job, JobId};
use crate::retry::{Backoff, Verdict};
use crate::store::{self, Fence};
use crate::tally::Sums;

/// A claimed batch that is being worked.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) fence: Fence,
    pub(crate) jobs: usize,
    pub(crate) backoff: Backoff,
    /// Whose claim it is.
    pub(crate) worker: Arc<Identity>,
}

/// What is to become of one job.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) batch: Arc<Batch>,
    pub(crate) id: JobId,
    /// None when it could not be read.
    pub(crate) job: Option<Arc<Job>>,
    /// The handler says that it has completed it in a transaction of its own.
    pub(crate) is_completed: bool,
    /// It holds a unique key, which has to be released.
    pub(crate) is_keyed: bool,
    pub(crate) verdict: Verdict,
}

/// A batch that is not settled wholly waits this long for the next of its jobs to end.
const PATIENCE: Duration = Duration::from_millis(10);
/// And this long in all, several times what a batch is meant to run: one that is closed in parts costs ten times as much.
const LONGEST_PATIENCE: Duration = Duration::from_millis(100);
/// While batches are incomplete, outcomes are looked at no more often than this: who tells them need not wake anybody for each.
const GATHER: Duration = Duration::from_millis(1);
/// Batches closed as a whole in one transaction, which holds a lock for each.
const WHOLE: usize = 500;
/// Outcomes taken from the channel at once.
const TAKE: usize = 4096;

/// Settles outcomes until the channel closes.
pub(crate) async fn run(engine: Arc<Engine>, mut settled: UnboundedReceiver<Settled>) {
    let mut waiting: HashMap<Fence, Waiting> = HashMap::new();
    let mut taken = Vec::with_capacity(TAKE);
    loop {
        let next = waiting.values().map(Waiting::until).min();
        tokio::select! {
            biased;
            count = settled.recv_many(&mut taken, TAKE) => {
                if count == 0 {
                    flush(&engine, waiting.drain().map(|(_, one)| one.jobs).collect()).await;
                    return;
                }
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(|| Instant::now() + PATIENCE)), if next.is_some() => {}
        }
        engine.ended();
        let now = Instant::now();
        for one in taken.drain(..) {
            let entry = waiting.entry(one.batch.fence).or_insert_with(|| Waiting {
                since: now,
                last: now,
                jobs: Vec::new(),
            });
            entry.last = now;
            entry.jobs.push(one);
        }
        let ripe: Vec<Fence> = waiting
            .iter()
            .filter(|(_, one)| one.is_whole() || one.until() <= now)
            .map(|(fence, _)| *fence)
            .collect();
        let ripe: Vec<_> = ripe
            .iter()
            .filter_map(|fence| waiting.remove(fence))
            .map(|one| one.jobs)
            .collect();
        if ripe.is_empty() {
            tokio::time::sleep(GATHER).await;
        } else {
            flush(&engine, ripe).await;
        }
    }
}

/// Outcomes of one batch that wait for the others.
struct Waiting {
    /// When the first came.
    since: Instant,
    /// When the last one came.
    last: Instant,
    jobs: Vec<Settled>,
}

impl Waiting {
    /// How long it waits if no other comes.
    fn until(&self) -> Instant {
        (self.last + PATIENCE).min(self.since + LONGEST_PATIENCE)
    }

    fn is_whole(&self) -> bool {
        self.jobs
            .first()
            .is_some_and(|one| one.batch.jobs == self.jobs.len())
    }
}

/// How a batch is closed.
#[derive(Debug, PartialEq, Eq)]
enum Closing {
    /// All its jobs are plainly done: by a statement that names no job, and closes other batches too.
    Whole,
    /// All of them go on after the same time, with no attempt burnt: by one that names none either.
    PutOff {
        after: Duration,
        error: Option<String>,
    },
    /// Each in its own way.
    JobByJob,
}

impl Closing {
    fn of(jobs: &[Settled]) -> Self {
        let Some(first) = jobs.first() else {
            return Self::JobByJob;
        };
        if first.batch.jobs != jobs.len() || first.batch.fence.slot < 0 {
            return Self::JobByJob;
        }
        match &first.verdict {
            Verdict::Done if jobs.iter().all(Settled::is_plain) => Self::Whole,
            Verdict::Park { after, error, .. } => match after {
                Some(after)
                    if jobs
                        .iter()
                        .all(|one| one.is_put_off(*after, error.as_deref())) =>
                {
                    let (after, error) = (*after, error.clone());
                    Self::PutOff { after, error }
                }
                _ => Self::JobByJob,
            },
            _ => Self::JobByJob,
        }
    }
}

impl Settled {
    fn is_plain(&self) -> bool {
        self.verdict == Verdict::Done && !self.is_keyed
    }

    /// Whether it goes on after this time and nothing else is new of it.
    fn is_put_off(&self, wait: Duration, why: Option<&str>) -> bool {
        let Verdict::Park {
            attempt,
            after,
            until: None,
            error,
        } = &self.verdict
        else {
            return false;
        };
        let unburnt = |job: &Arc<Job>| job.attempt == *attempt;
        *after == Some(wait) && error.as_deref() == why && self.job.as_ref().is_some_and(unburnt)
    }
}

async fn flush(engine: &Arc<Engine>, batches: Vec<Vec<Settled>>) {
    let mut plain = Vec::new();
    let mut later = Vec::new();
    let mut mixed = Vec::new();
    for jobs in batches {
        match Closing::of(&jobs) {
            Closing::Whole => plain.push(jobs),
            Closing::PutOff { after, error } => later.push((jobs, after, error)),
            Closing::JobByJob => mixed.push(jobs),
        }
    }
    while !plain.is_empty() {
        let rest = plain.split_off(plain.len().min(WHOLE));
        close_whole(engine, plain).await;
        plain = rest;
    }
    // What is done goes first: the others write a row for each job.
    for (jobs, after, error) in later {
        put_off(engine, jobs, after, error).await;
    }
    for jobs in mixed {
        settle(engine, jobs, false).await;
    }
}

/// Closes batches as a whole, and job by job where that cannot be.
async fn close_whole(engine: &Arc<Engine>, batches: Vec<Vec<Settled>>) {
    let size = |jobs: &Vec<Settled>| i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    let closes: Vec<(Fence, i32)> = batches
        .iter()
        .map(|jobs| (jobs[0].batch.fence, size(jobs)))
        .collect();
    match store::close_whole(&engine.acknowledgements, &closes).await {
        Ok(left) => {
            for (at, jobs) in batches.into_iter().enumerate() {
                if left.contains(&at) {
                    settle(engine, jobs, false).await;
                } else {
                    count(engine, &jobs, None);
                    engine.settled(jobs.len());
                }
            }
        }
        Err(error) => {
            // Without an answer the batches may be closed already: job by job they are closed now, or found closed.
            tracing::debug!(%error, "whole batches could not be acknowledged at once");
            for jobs in batches {
                settle(engine, jobs, true).await;
            }
        }
    }
}

/// Puts off a whole batch, and job by job where that cannot be.
async fn put_off(engine: &Arc<Engine>, jobs: Vec<Settled>, after: Duration, error: Option<String>) {
    let size = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    let (link, fence) = (&engine.acknowledgements, jobs[0].batch.fence);
    match store::put_off(link, fence, size, after, error.as_deref()).await {
        Ok(true) => {
            count(engine, &jobs, None);
            engine.settled(jobs.len());
        }
        Ok(false) => settle(engine, jobs, false).await,
        Err(error) => {
            // As above.
            tracing::debug!(%error, "a whole batch could not be put off at once");
            settle(engine, jobs, true).await;
        }
    }
}

/// Settles the jobs of one batch, again until there is an answer: a repeated acknowledgement finds its jobs closed and changes nothing.
/// What the server refuses, because somebody's open transaction is closing one of the jobs or for what one of them says, is settled job by
/// job beside the others, so that it delays only itself.
async fn settle(engine: &Arc<Engine>, jobs: Vec<Settled>, mut repeated: bool) {
    let mut failures = 0u32;
    loop {
        let link = &engine.acknowledgements;
        match store::settle(link, jobs[0].batch.fence, &jobs).await {
            Ok(ours) => {
                let ours = ours.into_iter().collect();
                report_lost(&jobs, &ours, repeated);
                count(engine, &jobs, Some(&ours));
                break;
            }
            Err(error) if engine.gave_up() => {
                give_up(&jobs, &error);
                break;
            }
            Err(error) if !error.is_connection() => {
                tracing::debug!(%error, jobs = jobs.len(), "an acknowledgement was refused; its jobs are settled one by one");
                engine.set_aside(jobs.len());
                for job in jobs {
                    let alone = settle_alone(Arc::clone(engine), job, repeated);
                    tokio::spawn(engine.guarded("acknowledge alone", alone));
                }
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "an acknowledgement failed; it is tried again");
                repeated = true;
                failures += 1;
                tokio::time::sleep(before_next(failures)).await;
            }
        }
    }
    engine.settled(jobs.len());
}

/// Settles one job that could not be settled with its batch. What waits for a lock keeps off the connection that the others need.
async fn settle_alone(engine: Arc<Engine>, job: Settled, mut repeated: bool) {
    let jobs = [job];
    let mut failures = 0u32;
    loop {
        match store::settle(&engine.repeats, jobs[0].batch.fence, &jobs).await {
            Ok(ours) => {
                let ours = ours.into_iter().collect();
                report_lost(&jobs, &ours, repeated);
                count(&engine, &jobs, Some(&ours));
                break;
            }
            Err(error) if engine.gave_up() => {
                give_up(&jobs, &error);
                break;
            }
            Err(error) => {
                failures += 1;
                repeated |= !error.is_rollback();
                if is_passing(&error) {
                    tracing::debug!(%error, failures, "an acknowledgement failed again");
                } else {
                    tracing::error!(job = %jobs[0].id, %error, failures, "an outcome is refused; it is tried again");
                }
                tokio::time::sleep(before_next(failures)).await;
            }
        }
    }
    engine.settled_aside(1);
}

/// Counts what became of jobs that are closed for good: all of them, or those that were still ours. A job that its handler completed is not ours any more.
fn count(engine: &Engine, jobs: &[Settled], ours: Option<&HashSet<i64>>) {
    let done = Verdict::Done;
    engine.tally.add(jobs.iter().filter_map(|one| {
        let job = one.job.as_deref()?;
        match ours.is_none_or(|ours| ours.contains(&one.id.0)) {
            true => Some((job, Sums::of(job, &one.verdict))),
            false if one.is_completed => Some((job, Sums::of(job, &done))),
            false => None,
        }
    }));
}

fn give_up(jobs: &[Settled], error: &Error) {
    tracing::error!(%error, jobs = jobs.len(), first = %jobs[0].id, "jobs could not be acknowledged; they will be rescued and run again");
}

fn before_next(failures: u32) -> Duration {
    let longest = Duration::from_millis(20).saturating_mul(1 << failures.min(9));
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Whether the same statement may succeed later by itself: lost connections, servers that restart or only read, locks, serialization.
fn is_passing(error: &Error) -> bool {
    let class = error
        .sqlstate()
        .map(|state| state.code().get(..2).unwrap_or_default().to_owned());
    error.is_connection()
        || matches!(
            class.as_deref(),
            Some("25" | "40" | "53" | "55" | "57" | "58")
        )
}

fn report_lost(jobs: &[Settled], ours: &HashSet<i64>, repeated: bool) {
    // Giving back is also how a completion in the handler's own transaction is checked: losing that race is the good case.
    let lost: Vec<i64> = jobs
        .iter()
        .filter(|one| one.verdict != Verdict::GiveBack && !ours.contains(&one.id.0))
        .map(|one| one.id.0)
        .collect();
    if !lost.is_empty() && !repeated {
        tracing::warn!(
            jobs = lost.len(),
            first = lost[0],
            "outcomes came too late: these jobs had been taken over"
        );
    }
}
