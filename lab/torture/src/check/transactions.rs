//! Checks the result of each transaction: H1, H2, H3 and H6.

use super::book::{Book, Job};
use super::{Judge, Rule};
use crate::history::{CommitResult, How, JobBehavior};

/// States that a job leaves only if an operator redrives it.
const ENDED: [&str; 4] = ["dead", "discarded", "expired", "cancelled"];

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    for (key, job) in &book.jobs {
        count(job, judge);
        if job.is_absent() {
            let is_clean = job.runs.is_empty() && !job.is_in_the_store();
            let what =
                "were run or kept although they were rolled back, or their unique key was taken";
            judge.must(Rule::H2, is_clean, *key, what);
        } else if job.is_promised {
            ended(*key, job, judge);
        } else {
            gone(book, *key, job, judge);
        }
        let is_left = job.shown.iter().any(|state| !ENDED.contains(state));
        judge.must(Rule::H6, !is_left, *key, "are left undone");
        let is_double = job.shown.len() > 1;
        judge.must(
            Rule::H6,
            !is_double,
            *key,
            "were stored in two places at once",
        );
    }
    for key in &book.unknown_keys {
        judge.must(Rule::H2, false, *key, "came from nowhere");
    }
    let litter = !book.history.end.litter.is_empty();
    judge.must(Rule::H6, !litter, 0, "left something behind");
    if litter {
        judge.verdict.findings.push(super::Finding {
            rule: Rule::H6,
            what: book.history.end.litter.join(", "),
            jobs: 0,
            some: Vec::new(),
        });
    }
}

fn count(job: &Job<'_>, judge: &mut Judge) {
    let load = &mut judge.verdict.load;
    load.meant += 1;
    match job.result {
        _ if job.intent.undone => load.rolled_back += 1,
        CommitResult::RolledBack => load.rolled_back += 1,
        CommitResult::Ambiguous => load.ambiguous += 1,
        CommitResult::Committed if job.absorbed => load.absorbed += 1,
        CommitResult::Committed => load.committed += 1,
    }
}

/// Checks a job whose transaction was committed.
fn ended(key: i64, job: &Job<'_>, judge: &mut Judge) {
    let is_done = match job.intent.behavior {
        JobBehavior::Discard => {
            job.shown == ["discarded"] && job.ends(|how| how == How::Discarded).count() > 0
        }
        JobBehavior::Exhaust => job.shown == ["dead"],
        JobBehavior::Expire => job.shown == ["expired"] && job.runs.is_empty(),
        JobBehavior::Complete => job.shown.is_empty() && job.effects > 0,
        // A confirmation that was not answered may have been received.
        JobBehavior::Await { .. } => {
            let is_last = |how| matches!(how, How::Done | How::Confirmed | How::Ambiguous);
            job.shown.is_empty() && job.ends(is_last).count() > 0
        }
        _ => {
            let is_last = |how| matches!(how, How::Done | How::Confirmed);
            job.shown.is_empty() && job.ends(is_last).count() > 0
        }
    };
    let rule = match job.result {
        CommitResult::Ambiguous => Rule::H3,
        _ => Rule::H1,
    };
    let what = "are in the database and did not end as they had to";
    judge.must(rule, is_done, key, what);
}

/// Checks a job whose transaction the database does not have.
fn gone(book: &Book<'_>, key: i64, job: &Job<'_>, judge: &mut Judge) {
    let may_be_gone = book.may_be_gone(job);
    if job.result == CommitResult::Committed {
        let what = "were committed and are lost";
        judge.must(Rule::H1, may_be_gone, key, what);
        judge.verdict.load.lost_with_the_primary += u64::from(may_be_gone);
    }
    // It may have been run before the server that had it died.
    let last = book.promotions().map(|promotion| promotion.until).max();
    let is_clean = !job.is_in_the_store()
        && (job.runs.is_empty()
            || may_be_gone && job.runs.iter().all(|run| Some(run.began) <= last));
    let what = "were run or kept although their transaction is not in the database";
    judge.must(Rule::H3, is_clean, key, what);
}
