//! Checks how soon jobs begin on a system with little load: sleeping workers are woken by every
//! kind of hand-over.

use std::collections::BTreeMap;

use super::book::{Book, Job};
use super::{Judge, Rule};
use crate::history::{How, JobBehavior, Moment, Run};

/// The limit for a hand-over on a busy machine, in microseconds.
const SOON: Moment = 500_000;
/// The longest back-off of the workers of a round, and how long they hold unconfirmed jobs, in
/// microseconds.
const RESCHEDULED_FOR: Moment = 300_000;
/// Fewer late jobs of a kind than this prove nothing.
const FEW: usize = 3;
/// How long a fault has effects, in microseconds: until jobs of dead workers are rescued and
/// disconnected workers are back.
const FELT: Moment = 15_000_000;

/// An event that hands a job over to a sleeping worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Handover {
    Enqueued,
    Due,
    Unblocked,
    Snoozed,
    Retried,
    /// The back-off met a step back of a clock that was ahead.
    CarriedOver,
}

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    let mut kinds: BTreeMap<Handover, (Vec<i64>, u64)> = BTreeMap::new();
    for (key, job) in &book.jobs {
        for (handover, ready, run) in beginnings(book, *key, job) {
            if is_quiet(book, ready, run.began) {
                let (late, all) = kinds.entry(handover).or_default();
                *all += 1;
                if run.began > ready + SOON {
                    late.push(*key);
                }
            }
        }
    }
    tolerate(kinds, judge);
}

/// Tolerates one late job in ten, because a machine may be busy. Of each kind at most one in three
/// may be late, so that a kind of hand-over that wakes no worker is not hidden among the others.
pub(super) fn tolerate(kinds: BTreeMap<Handover, (Vec<i64>, u64)>, judge: &mut Judge) {
    let all: u64 = kinds.values().map(|(_, all)| all).sum();
    *judge.verdict.examined.entry(Rule::Prompt).or_default() += all;
    let late: Vec<i64> = kinds.values().flat_map(|(late, _)| late.clone()).collect();
    judge.must(
        Rule::Prompt,
        late.len() as u64 * 10 <= all,
        late.first().copied().unwrap_or(0),
        "was begun late, and one in ten of all was, although little kept it",
    );
    for (handover, (late, all)) in kinds {
        judge.must(
            Rule::Prompt,
            late.len() < FEW || late.len() as u64 * 3 <= all,
            late.first().copied().unwrap_or(0),
            handover.complaint(),
        );
    }
}

impl Handover {
    fn complaint(self) -> &'static str {
        match self {
            Self::Enqueued => "was begun late, as one in three that were enqueued",
            Self::Due => "was begun late, as one in three that became due",
            Self::Unblocked => "was begun late, as one in three behind another of their key",
            Self::Snoozed => "was begun late, as one in three that were put off",
            Self::Retried => "was begun late, as one in three that were tried again",
            Self::CarriedOver => "was begun late, as one in three whose back-off a step back met",
        }
    }
}

/// Each run of a job, with the time from which only sleep delayed it.
fn beginnings<'b>(book: &Book<'_>, key: i64, job: &'b Job<'_>) -> Vec<(Handover, Moment, &'b Run)> {
    let mut all = Vec::new();
    if !job.is_kept()
        || job.answered_at == Moment::MAX
        || job.intent.behavior == JobBehavior::Expire
    {
        return all;
    }
    if let Some(first) = job.runs.first() {
        let enqueued = (Handover::Enqueued, job.answered_at);
        let due = (Handover::Due, job.intent.due);
        let free = ordering_key_is_free(book, key, job, first.began);
        let last = [enqueued, due, (Handover::Unblocked, free)];
        if let Some((handover, ready)) = last.into_iter().max_by_key(|(_, at)| *at) {
            all.push((handover, ready, *first));
        }
    }
    for pair in job.runs.windows(2) {
        let (before, next) = (pair[0], pair[1]);
        match (before.ended, job.intent.behavior) {
            (Some((How::Later, at)), JobBehavior::Snooze(until)) => {
                all.push((Handover::Snoozed, at.max(until), next));
            }
            (Some((How::Again | How::Unconfirmed, at)), _) => {
                all.push((Handover::Retried, at + RESCHEDULED_FOR, next));
            }
            _ => {}
        }
    }
    all
}

/// The time at which the last run of another job of its ordering key had ended before this time.
pub(super) fn ordering_key_is_free(
    book: &Book<'_>,
    key: i64,
    job: &Job<'_>,
    began: Moment,
) -> Moment {
    let Some(ordering_key) = &job.intent.ordering_key else {
        return 0;
    };
    let others = book.jobs.iter().filter(|(other, _)| **other != key);
    let theirs =
        others.filter(|(_, other)| other.intent.ordering_key.as_ref() == Some(ordering_key));
    let ends = theirs.flat_map(|(_, other)| other.runs.iter().filter_map(|run| run.ended));
    let before = ends.map(|(_, at)| at).filter(|at| *at <= began);
    // The job before may be waiting for its next attempt.
    before.max().map_or(0, |at| at + RESCHEDULED_FOR)
}

fn is_quiet(book: &Book<'_>, from: Moment, until: Moment) -> bool {
    let mut faults = book.history.faults.iter();
    !faults.any(|fault| fault.until + FELT >= from && fault.from <= until)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fault, intent, producer, run};
    use super::super::{Rule, check_idle};
    use super::{FELT, Moment, SOON};
    use crate::history::{CommitResult, End, History, How, Intent, JobBehavior, Kind};

    const SECOND: Moment = 1_000_000;

    /// This many jobs, each in a separate transaction; those with key `late` and above begin late
    /// by `by`. Those from `due` on become due half a second after they were enqueued.
    fn idle(jobs: i64, due: i64, late: i64, by: Moment) -> History {
        let enqueued = |key: i64| (key - 1) * SECOND + SECOND / 10;
        let due_at = |key: i64| enqueued(key) + if key >= due { SECOND / 2 } else { 0 };
        let queue = |key| {
            vec![Intent {
                due: if key >= due { due_at(key) } else { 0 },
                ..intent(key, JobBehavior::Finish)
            }]
        };
        let transactions = (1..=jobs).map(|key| (CommitResult::Committed, queue(key)));
        let begins = |key: i64| due_at(key) + if key >= late { by } else { 10_000 };
        History {
            meant: vec![producer(transactions.collect())],
            runs: (1..=jobs)
                .map(|key| run("w0.1", key, 0, begins(key), Some(How::Done)))
                .collect(),
            end: End {
                promised: (1..=jobs).collect(),
                ..End::default()
            },
            ..History::default()
        }
    }

    fn is_prompt(history: &History) -> bool {
        let verdict = check_idle(history);
        assert!(verdict.examined[&Rule::Prompt] > 1, "{verdict:?}");
        verdict.findings.iter().all(|one| one.rule != Rule::Prompt)
    }

    #[test]
    fn one_job_in_ten_may_be_late_but_not_two() {
        assert!(is_prompt(&idle(10, 11, 11, 0)));
        assert!(is_prompt(&idle(10, 11, 10, 2 * SOON)));
        assert!(!is_prompt(&idle(10, 11, 9, 2 * SOON)));
    }

    #[test]
    fn lateness_is_judged_separately_for_each_kind() {
        assert!(is_prompt(&idle(40, 38, 39, 2 * SOON)));
        assert!(!is_prompt(&idle(40, 38, 38, 2 * SOON)));
        assert!(is_prompt(&idle(40, 41, 38, 2 * SOON)));
    }

    #[test]
    fn nearby_faults_excuse_late_jobs() {
        let mut history = idle(10, 11, 6, 2 * SOON);
        history
            .faults
            .push(fault(Kind::Kill, 6 * SECOND, Some("w0")));
        let verdict = check_idle(&history);
        assert!(verdict.findings.iter().all(|one| one.rule != Rule::Prompt));
        history.faults[0].until -= FELT + 9 * SECOND;
        history.faults[0].from = history.faults[0].until;
        assert!(!is_prompt(&history));
    }
}
