//! Checks how soon work continues after the server's clock stepped: with a delay, but not one as
//! long as the step.

use std::collections::BTreeMap;

use super::book::{Book, Job};
use super::prompt::{Handover, ordering_key_is_free, tolerate};
use super::{Judge, Rule};
use crate::history::{How, JobBehavior, Moment, Run};
use crate::worker::backoff;

/// The limit for a hand-over on a busy machine with a backlog, in microseconds.
const SOON: Moment = 3_000_000;

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    let mut kinds = BTreeMap::new();
    for (key, job) in &book.jobs {
        for (handover, since, due, run) in beginnings(book, *key, job) {
            let bound = book.clock.due_by(since, due, SOON, run.began);
            if let Some(bound) = bound {
                let (late, all): &mut (Vec<i64>, u64) = kinds.entry(handover).or_default();
                *all += 1;
                if run.began > bound {
                    late.push(*key);
                }
            }
        }
    }
    tolerate(kinds, judge);
    for is_in_time in book.clock.followings() {
        let what = "(none): a step back was followed late";
        judge.must(Rule::Prompt, is_in_time, 0, what);
    }
}

/// Each run of a job, the time from which it waited only for its due time, and that due time by the
/// server's clock: 0 for none.
fn beginnings<'b>(
    book: &Book<'_>,
    key: i64,
    job: &'b Job<'_>,
) -> Vec<(Handover, Moment, Moment, &'b Run)> {
    let mut all = Vec::new();
    if !job.is_kept()
        || job.answered_at == Moment::MAX
        || job.intent.behavior == JobBehavior::Expire
    {
        return all;
    }
    if let Some(first) = job.runs.first() {
        let handover = match (&job.intent.ordering_key, job.intent.due) {
            (Some(_), _) => Handover::Unblocked,
            (None, 0) => Handover::Enqueued,
            (None, _) => Handover::Due,
        };
        let free = ordering_key_is_free(book, key, job, first.began);
        all.push((handover, job.answered_at.max(free), job.intent.due, *first));
    }
    let cap = Moment::try_from(backoff(true).cap.as_micros()).unwrap_or(0);
    for pair in job.runs.windows(2) {
        let (before, next) = (pair[0], pair[1]);
        match (before.ended, job.intent.behavior) {
            (Some((How::Later, at)), JobBehavior::Snooze(until)) => {
                all.push((Handover::Snoozed, at, until, next));
            }
            (Some((How::Again, at)), _) => {
                let handover = match book.clock.stepped_back(at, at + cap) {
                    true => Handover::CarriedOver,
                    false => Handover::Retried,
                };
                all.push((handover, at + cap, 0, next));
            }
            _ => {}
        }
    }
    all
}
