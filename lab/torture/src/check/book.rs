//! Joins the logs by job.

use std::collections::BTreeMap;

use super::clock::Clock;
use crate::history::{
    CommitResult, Fault, History, How, Intent, JobBehavior, Kind, Meant, Moment, Run,
};

/// The longest time between a fault and a repeated run that it caused: a claim that a crash rolled
/// back may wait in its worker's queue.
const SLACK: Moment = 5_000_000;

/// A job, from all logs.
pub(super) struct Job<'h> {
    pub(super) intent: &'h Intent,
    pub(super) result: CommitResult,
    pub(super) absorbed: bool,
    /// A time before its transaction began.
    pub(super) meant_at: Moment,
    /// The time at which its producer knew the result.
    pub(super) answered_at: Moment,
    pub(super) lsn: Option<u64>,
    /// The number of the producer, and of its transaction.
    pub(super) transaction: (usize, u64),
    /// Its position in its transaction.
    pub(super) place: usize,
    /// In the order in which they began.
    pub(super) runs: Vec<&'h Run>,
    /// Its states in the store, if any.
    pub(super) shown: Vec<&'h str>,
    /// Whether the row that its transaction wrote with it exists.
    pub(super) is_promised: bool,
    pub(super) effects: i64,
}

pub(super) struct Book<'h> {
    pub(super) history: &'h History,
    pub(super) clock: Clock<'h>,
    pub(super) jobs: BTreeMap<i64, Job<'h>>,
    /// Keys in the logs that no producer has used.
    pub(super) unknown_keys: Vec<i64>,
}

impl<'h> Book<'h> {
    pub(super) fn of(history: &'h History) -> Self {
        let mut jobs = BTreeMap::new();
        for (producer, lines) in history.meant.iter().enumerate() {
            meant(producer, lines, &mut jobs);
        }
        let mut book = Self {
            history,
            clock: Clock::of(history),
            jobs,
            unknown_keys: Vec::new(),
        };
        for run in &history.runs {
            book.job(run.key, |job| job.runs.push(run));
        }
        for (key, state) in &history.end.shown {
            book.job(*key, |job| job.shown.push(state));
        }
        for key in &history.end.promised {
            book.job(*key, |job| job.is_promised = true);
        }
        for (key, count) in &history.end.effects {
            book.job(*key, |job| job.effects = *count);
        }
        for job in book.jobs.values_mut() {
            job.runs.sort_by_key(|run| run.began);
        }
        book
    }

    fn job(&mut self, key: i64, note: impl FnOnce(&mut Job<'h>)) {
        match self.jobs.get_mut(&key) {
            Some(job) => note(job),
            None => self.unknown_keys.push(key),
        }
    }

    pub(super) fn promotions(&self) -> impl Iterator<Item = &'h Fault> {
        let faults = self.history.faults.iter();
        faults.filter(|fault| fault.kind == Kind::Promotion)
    }

    /// Whether a job whose producer saw the COMMIT succeed may be lost: its commit is after the
    /// position up to which a promoted replica had received.
    pub(super) fn may_be_gone(&self, job: &Job<'_>) -> bool {
        self.promotions().any(|promotion| {
            let is_behind = match (job.lsn, promotion.switch) {
                (Some(lsn), Some(switch)) => lsn > switch,
                _ => true,
            };
            is_behind && job.meant_at < promotion.until
        })
    }

    /// Lists the faults between two times after which a job may be repeated without a reason of its
    /// own, or may lose or count an attempt. A connection that is merely cut is no such fault:
    /// claims are returned, and acknowledgements are retried until they are answered.
    pub(super) fn excuses(
        &self,
        worker: &str,
        from: Moment,
        until: Moment,
    ) -> impl Iterator<Item = &'h Fault> {
        self.struck(worker, from, until)
            .filter(|fault| takes_jobs(fault.kind))
    }

    /// Lists the faults after which a worker may start a job late that it had claimed before,
    /// although the job was given to other workers.
    pub(super) fn delays(
        &self,
        worker: &str,
        from: Moment,
        until: Moment,
    ) -> impl Iterator<Item = &'h Fault> {
        self.struck(worker, from, until)
            .filter(|fault| matches!(fault.kind, Kind::Freeze | Kind::Stall | Kind::Unread))
    }

    fn struck(&self, worker: &str, from: Moment, until: Moment) -> impl Iterator<Item = &'h Fault> {
        let place = worker.split('.').next().unwrap_or_default().to_owned();
        self.history.faults.iter().filter(move |fault| {
            let struck = fault.target.as_ref().is_none_or(|target| *target == place);
            struck && fault.until + SLACK >= from && fault.from <= until
        })
    }
}

/// Whether a fault may take a worker's jobs away, so that they are repeated, or lose or count an
/// attempt.
pub(super) fn takes_jobs(kind: Kind) -> bool {
    let takes_all = matches!(kind, Kind::Crash | Kind::Promotion);
    takes_all
        || matches!(
            kind,
            Kind::Kill | Kind::HalfOpen | Kind::Freeze | Kind::Stall | Kind::Unread
        )
}

impl Job<'_> {
    /// Whether its transaction or savepoint was rolled back, or the job was not enqueued.
    pub(super) fn is_absent(&self) -> bool {
        self.result == CommitResult::RolledBack || self.intent.undone || self.absorbed
    }

    /// Whether it was committed and not lost.
    pub(super) fn is_kept(&self) -> bool {
        self.is_promised && !self.is_absent()
    }

    /// The earliest time at which it can have ended permanently. A job that is completed in the
    /// handler's transaction ends with that transaction, before its handler returns.
    pub(super) fn first_end(&self) -> Option<Moment> {
        if self.intent.behavior == JobBehavior::Complete {
            return self.runs.first().map(|run| run.began);
        }
        let ends = self.ends(|how| match self.intent.behavior {
            JobBehavior::Exhaust => how == How::Again,
            JobBehavior::Await { .. } => matches!(how, How::Done | How::Confirmed | How::Ambiguous),
            _ => matches!(how, How::Done | How::Discarded),
        });
        ends.min()
    }

    /// Whether the store has any trace of it.
    pub(super) fn is_in_the_store(&self) -> bool {
        self.is_promised || !self.shown.is_empty() || self.effects > 0
    }

    /// The times at which runs with these results ended.
    pub(super) fn ends(&self, is_meant: impl Fn(How) -> bool) -> impl Iterator<Item = Moment> {
        let ends = self.runs.iter().filter_map(|run| run.ended);
        ends.filter(move |(how, _)| is_meant(*how))
            .map(|(_, at)| at)
    }
}

fn meant<'h>(producer: usize, lines: &'h [Meant], jobs: &mut BTreeMap<i64, Job<'h>>) {
    let mut open: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for line in lines {
        match line {
            Meant::Intent {
                tx,
                at,
                jobs: intents,
            } => {
                open.insert(*tx, intents.iter().map(|intent| intent.key).collect());
                for (place, intent) in intents.iter().enumerate() {
                    // Until an outcome is written, the result is unknown.
                    let job = Job {
                        intent,
                        result: CommitResult::Ambiguous,
                        absorbed: false,
                        meant_at: *at,
                        answered_at: Moment::MAX,
                        lsn: None,
                        transaction: (producer, *tx),
                        place,
                        runs: Vec::new(),
                        shown: Vec::new(),
                        is_promised: false,
                        effects: 0,
                    };
                    jobs.insert(intent.key, job);
                }
            }
            Meant::Outcome {
                tx,
                at,
                result,
                absorbed,
                lsn,
            } => {
                for key in open.remove(tx).unwrap_or_default() {
                    if let Some(job) = jobs.get_mut(&key) {
                        job.result = *result;
                        job.answered_at = *at;
                        job.absorbed = absorbed.contains(&key);
                        job.lsn = *lsn;
                    }
                }
            }
        }
    }
}
