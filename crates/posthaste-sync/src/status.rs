//! The status of a sync: documents counted by tag, outcome and reason.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::Job;

use super::compare::SyncOutcome;

/// The counter of checked documents by outcome, for programs that collect metrics through the
/// facade [`metrics`](https://docs.rs/metrics). Its labels are `queue`, `tag`, `outcome` and
/// `reason`, the last three as in [`SyncCount`]. The first hundred tags have their own counters,
/// all others share `other`.
pub const DOCUMENTS_TOTAL: &str = "posthaste_sync_documents_total";

/// The most tags that are counted separately. Limited because the programs that write rows choose
/// them.
const MAX_TAGS: usize = 100;
/// The tag under which all others are counted.
const OTHER_TAG: &str = "other";

/// The status of a sync since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncStatus {
    counts: BTreeMap<(Box<str>, &'static str, &'static str), u64>,
    /// The tags that are counted separately.
    tags: BTreeSet<Box<str>>,
    /// The number of batches that were checked.
    pub passes: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// One counter of a sync.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncCount<'a> {
    /// The tag of the jobs; `other` for those beyond the first hundred.
    pub tag: &'a str,
    /// The outcome: `written`, `done`, `failed`, `rescheduled` or `rejected`.
    pub what: &'a str,
    /// The reason, as in [`Reason::name`](super::Reason::name); empty for failed, rejected and
    /// rescheduled jobs.
    pub reason: &'a str,
    /// The number of jobs.
    pub jobs: u64,
}

impl SyncStatus {
    /// Returns all counters, in the order of tag, outcome and reason.
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

    /// Returns the number of jobs with this outcome, over all tags and reasons.
    pub fn total(&self, what: &str) -> u64 {
        let of = self.counts().filter(|one| one.what == what);
        of.map(|one| one.jobs).sum()
    }

    /// Counts the outcomes of a batch.
    pub(super) fn count_batch<'a>(
        &mut self,
        batch: impl Iterator<Item = (&'a Job, &'a SyncOutcome)>,
    ) {
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
            let tag = self.add_jobs(tag, what, reason, jobs);
            metrics::counter!(
                DOCUMENTS_TOTAL,
                "queue" => queue.to_owned(), "tag" => tag, "outcome" => what, "reason" => reason
            )
            .increment(jobs);
        }
    }

    /// Returns the tag under which the jobs were counted.
    fn add_jobs(
        &mut self,
        tag: &str,
        what: &'static str,
        reason: &'static str,
        jobs: u64,
    ) -> String {
        let is_known = self.tags.contains(tag);
        let tag = if is_known || self.tags.len() < MAX_TAGS {
            tag
        } else {
            OTHER_TAG
        };
        if !is_known && tag != OTHER_TAG {
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
            status.add_jobs(&format!("tag{n}"), "done", "equal", 2);
            status.add_jobs("tag7", "written", "missing", 1);
        }
        let tags: BTreeSet<&str> = status.counts().map(|one| one.tag).collect();
        assert_eq!(tags.len(), MAX_TAGS + 1);
        let of = |tag: &str, what: &str| {
            let mut all = status.counts();
            all.find(|one| (one.tag, one.what) == (tag, what))
                .map(|one| one.jobs)
        };
        assert_eq!(of("tag7", "written"), Some(150));
        assert_eq!(of("tag99", "done"), Some(2));
        assert_eq!(of("tag100", "done"), None);
        assert_eq!(of(OTHER_TAG, "done"), Some(2 * 50));
        assert_eq!(status.total("done"), 300);
    }
}
