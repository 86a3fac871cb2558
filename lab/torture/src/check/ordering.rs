//! Ordering keys: H5.

use std::collections::{BTreeMap, BTreeSet};

use super::book::{Book, Job};
use super::{Judge, Rule};
use crate::history::{JobBehavior, Run};

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    for jobs in ordered(book).values() {
        in_order(jobs, judge);
        one_at_a_time(book, jobs, judge);
    }
}

/// Checks messages, as far as their order is visible: those of one reader, because an arrival has
/// only one time.
pub(super) fn judge_messages(book: &Book<'_>, judge: &mut Judge) {
    for jobs in ordered(book).values() {
        let queues: BTreeSet<&str> = jobs.iter().map(|(_, job)| &*job.intent.queue).collect();
        for queue in queues {
            let jobs = jobs.iter().filter(|(_, job)| job.intent.queue == queue);
            in_order(&jobs.copied().collect::<Vec<_>>(), judge);
        }
    }
}

fn ordered<'b, 'h>(book: &'b Book<'h>) -> BTreeMap<&'h str, Vec<(i64, &'b Job<'h>)>> {
    let mut ordered: BTreeMap<&str, Vec<(i64, &Job<'_>)>> = BTreeMap::new();
    for (key, job) in &book.jobs {
        if let Some(ordering_key) = &job.intent.ordering_key
            && job.is_kept()
        {
            ordered.entry(ordering_key).or_default().push((*key, job));
        }
    }
    ordered
}

/// Checks that a job ended before another began, if it was committed before the other's transaction
/// began or precedes it in the same transaction.
fn in_order(jobs: &[(i64, &Job<'_>)], judge: &mut Judge) {
    for (key, before) in jobs {
        for (other, after) in jobs {
            let is_first = if before.transaction == after.transaction {
                before.place < after.place
            } else {
                before.answered_at < after.meant_at
            };
            let (true, Some(end), Some(run)) = (
                is_first && key != other,
                before.first_end(),
                after.runs.first(),
            ) else {
                continue;
            };
            let what = "were run before one that came before them in their ordering key";
            judge.must(Rule::H5, end <= run.began, *other, what);
        }
    }
}

/// Checks that no job begins while another of its key runs, in any order.
fn one_at_a_time(book: &Book<'_>, jobs: &[(i64, &Job<'_>)], judge: &mut Judge) {
    let mut runs: Vec<(&Run, JobBehavior)> = jobs
        .iter()
        .flat_map(|(_, job)| job.runs.iter().map(|run| (*run, job.intent.behavior)))
        .collect();
    runs.sort_by_key(|(run, _)| run.began);
    for pair in runs.windows(2) {
        let ((before, behavior), (next, _)) = (pair[0], pair[1]);
        // A job that is completed in its handler's transaction ends before its handler does.
        if before.key == next.key || behavior == JobBehavior::Complete {
            continue;
        }
        let has_ended = before.ended.is_some_and(|(_, at)| at <= next.began);
        let is_excused = || {
            book.excuses(&before.worker, before.began, next.began)
                .next()
                .is_some()
        };
        let what = "began while another one of their ordering key was running";
        judge.must(Rule::H5, has_ended || is_excused(), next.key, what);
    }
}
