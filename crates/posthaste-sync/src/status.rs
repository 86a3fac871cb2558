//! How a sync goes: what it did, by tag and reason.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::Job;

use super::compare::SyncOutcome;

/// How many documents of a sync were checked, and what came of them, for those who collect metrics
/// in this process by the facade [`metrics`](https://docs.rs/metrics). Labels: `queue`, `tag`,
/// `outcome` and `reason`, the last three as [`SyncCount`] has them. The first hundred tags have
/// their own, all others share `other`.
pub const DOCUMENTS_TOTAL: &str = "posthaste_sync_documents_total";

/// Tags that are counted by themselves: who writes rows chooses them.
const TAGS: usize = 100;
/// All others.
const OTHER: &str = "other";

/// How a sync goes, since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncStatus {
    counts: BTreeMap<(Box<str>, &'static str, &'static str), u64>,
    /// Those that are counted by themselves.
    tags: BTreeSet<Box<str>>,
    /// Batches that were checked.
    pub passes: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// One counter of a sync.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncCount<'a> {
    /// The tag of the jobs; `other` for those beyond the first hundred.
    pub tag: &'a str,
    /// What was done: `written`, `done`, `failed`, `rescheduled` or `rejected`.
    pub what: &'a str,
    /// Why, as [`Reason::name`](super::Reason::name) has it; empty for what failed or was
    /// rescheduled.
    pub reason: &'a str,
    /// How many jobs.
    pub jobs: u64,
}

impl SyncStatus {
    /// All counters, in the order of tag, what and reason.
    pub fn counts(&self) -> impl Iterator<Item = SyncCount<'_>> {
        self.counts
            .iter()
            .map(|((tag, what, reason), jobs)| SyncCount {
                tag,
                what,
                reason,
                jobs: *jobs,
            })
    }

    /// Jobs of all tags of which this was done, for whatever reason.
    pub fn total(&self, what: &str) -> u64 {
        let of = self.counts().filter(|one| one.what == what);
        of.map(|one| one.jobs).sum()
    }

    /// What came of the jobs of a batch.
    pub(super) fn count<'a>(&mut self, batch: impl Iterator<Item = (&'a Job, &'a SyncOutcome)>) {
        let mut sums = BTreeMap::<_, u64>::new();
        for (job, outcome) in batch {
            let (what, reason) = match outcome {
                SyncOutcome::Done(reason) => ("done", reason.name()),
                SyncOutcome::Written(reason) => ("written", reason.name()),
                SyncOutcome::Rejected(_) => ("rejected", ""),
                SyncOutcome::Failed(_) => ("failed", ""),
                SyncOutcome::Rescheduled(_) => ("rescheduled", ""),
            };
            if let SyncOutcome::Rejected(error)
            | SyncOutcome::Failed(error)
            | SyncOutcome::Rescheduled(error) = outcome
            {
                self.last_error = Some(error.clone());
            }
            *sums
                .entry((&*job.queue, &*job.tag, what, reason))
                .or_default() += 1;
        }
        for ((queue, tag, what, reason), jobs) in sums {
            let tag = self.add(tag, what, reason, jobs);
            metrics::counter!(
                DOCUMENTS_TOTAL,
                "queue" => queue.to_owned(), "tag" => tag, "outcome" => what, "reason" => reason
            )
            .increment(jobs);
        }
    }

    /// The tag that they were counted under.
    fn add(&mut self, tag: &str, what: &'static str, reason: &'static str, jobs: u64) -> String {
        let is_known = self.tags.contains(tag);
        let tag = if is_known || self.tags.len() < TAGS {
            tag
        } else {
            OTHER
        };
        if !is_known && tag != OTHER {
            self.tags.insert(tag.into());
        }
        *self.counts.entry((tag.into(), what, reason)).or_default() += jobs;
        tag.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_tags_are_counted_separately() {
        let mut status = SyncStatus::default();
        for n in 0..150 {
            status.add(&format!("tag{n}"), "done", "equal", 2);
            status.add("tag7", "written", "missing", 1);
        }
        let tags: BTreeSet<&str> = status.counts().map(|one| one.tag).collect();
        assert_eq!(tags.len(), TAGS + 1);
        let of = |tag: &str, what: &str| {
            let mut all = status.counts();
            all.find(|one| (one.tag, one.what) == (tag, what))
                .map(|one| one.jobs)
        };
        assert_eq!(of("tag7", "written"), Some(150));
        assert_eq!(of("tag99", "done"), Some(2));
        assert_eq!(of("tag100", "done"), None);
        assert_eq!(of(OTHER, "done"), Some(2 * 50));
        assert_eq!(status.total("done"), 300);
    }
}
