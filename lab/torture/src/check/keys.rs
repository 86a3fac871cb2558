//! Unique keys and delivery IDs.

use std::collections::BTreeMap;

use super::book::{Book, Job};
use super::{Judge, Rule};
use crate::history::Moment;

pub(super) fn judge(book: &Book<'_>, judge: &mut Judge) {
    unique(book, judge);
    identity(book, judge);
}

/// Checks that no two jobs held one key at the same time. A job certainly held its key from the
/// answer to its COMMIT (or its first run) until its earliest possible end.
fn unique(book: &Book<'_>, judge: &mut Judge) {
    let mut holders: BTreeMap<&str, Vec<(Moment, Moment, i64)>> = BTreeMap::new();
    for (key, job) in &book.jobs {
        if let (Some(unique), Some((from, until))) = (&job.intent.unique, held(job)) {
            holders.entry(unique).or_default().push((from, until, *key));
        }
    }
    for times in holders.values_mut() {
        times.sort_unstable();
        let mut latest = Moment::MIN;
        for (from, until, key) in times {
            let what = "held a unique key that another job held";
            judge.must(Rule::Unique, *from >= latest, *key, what);
            latest = latest.max(*until);
        }
    }
}

/// The shortest time for which it held its key.
fn held(job: &Job<'_>) -> Option<(Moment, Moment)> {
    let first = job.runs.first()?.began;
    let from = job.answered_at.min(first);
    let until = job.first_end()?;
    (job.is_kept() && from <= until).then_some((from, until))
}

/// Checks delivery IDs. Numbers are reused if a promoted replica has lost the jobs that had them;
/// delivery IDs are not. A job committed shortly before a promotion may get a different one.
pub(super) fn identity(book: &Book<'_>, judge: &mut Judge) {
    let mut names: BTreeMap<&str, i64> = BTreeMap::new();
    for (key, job) in &book.jobs {
        for run in &job.runs {
            let named = *names.entry(&run.delivery).or_insert(*key);
            let what = "have the delivery id of another job";
            judge.must(Rule::Identity, named == *key, *key, what);
            let first = job.runs[0];
            let is_excused = book
                .promotions()
                .any(|promotion| (first.began..=run.began).contains(&promotion.until));
            let is_kept = run.delivery == first.delivery || is_excused;
            judge.must(Rule::Identity, is_kept, *key, "changed their delivery id");
        }
    }
}
