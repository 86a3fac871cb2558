//! The logs, joined by job.

use std::collections::BTreeMap;

use super::clock::Clock;
use crate::history::{
    CommitResult, Fault, History, How, Intent, JobBehavior, Kind, Meant, Moment, Run,
};

/// How long before a run the fault may lie that made it a repeat: a claim that a crash forgot may
/// stand in its worker's line for a while.
const SLACK: Moment = 5_000_000;

/// A job, as everybody knows it.
pub(super) struct Job<'h> {
    pub(super) intent: &'h Intent,
    pub(super) result: CommitResult,
    pub(super) absorbed: bool,
    /// Before its transaction began.
    pub(super) meant_at: Moment,
    /// When its producer knew what became of it.
    pub(super) answered_at: Moment,
    pub(super) lsn: Option<u64>,
    /// Of which producer, and which of its transactions.
    pub(super) transaction: (usize, u64),
    /// In its transaction.
    pub(super) place: usize,
    /// In the order of their beginnings.
    pub(super) runs: Vec<&'h Run>,
    /// What the store shows of it, if anything.
    pub(super) shown: Vec<&'h str>,
    /// The row beside it is there.
    pub(super) is_promised: bool,
    pub(super) effects: i64,
}

pub(super) struct Book<'h> {
    pub(super) history: &'h History,
    pub(super) clock: Clock<'h>,
    pub(super) jobs: BTreeMap<i64, Job<'h>>,
    /// Keys in the logs that no producer meant.
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

    /// Whether a job that its producer took for committed may be gone: its commit lies behind what
    /// some replica had received when it was promoted.
    pub(super) fn may_be_gone(&self, job: &Job<'_>) -> bool {
        self.promotions().any(|promotion| {
            let is_behind = match (job.lsn, promotion.switch) {
                (Some(lsn), Some(switch)) => lsn > switch,
                _ => true,
            };
            is_behind && job.meant_at < promotion.until
        })
    }

    /// Faults after which a job may be run again without being asked for, or lose or count an
    /// attempt, between two moments. A connection that is only cut is no such fault: claims are
    /// given back, and acknowledgements go on until they are answered.
    pub(super) fn excuses(
        &self,
        worker: &str,
        from: Moment,
        until: Moment,
    ) -> impl Iterator<Item = &'h Fault> {
        self.struck(worker, from, until)
            .filter(|fault| takes_jobs(fault.kind))
    }

    /// Faults after which a worker may begin a job late that it had claimed before, although others
    /// were given it meanwhile.
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

/// Whether it may take a worker's jobs from it, so that they are run again, or lose or count an
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
    /// What its producer took back or never got in.
    pub(super) fn is_absent(&self) -> bool {
        self.result == CommitResult::RolledBack || self.intent.undone || self.absorbed
    }

    /// It was committed and not lost.
    pub(super) fn is_kept(&self) -> bool {
        self.is_promised && !self.is_absent()
    }

    /// Before this it cannot have ended for good: a job that is completed in the handler's
    /// transaction ends with that, before its handler returns.
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

    /// There is a trace of it in the store.
    pub(super) fn is_in_the_store(&self) -> bool {
        self.is_promised || !self.shown.is_empty() || self.effects > 0
    }

    /// Runs that ended so.
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
                    // Until an outcome is written, nothing is known.
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
