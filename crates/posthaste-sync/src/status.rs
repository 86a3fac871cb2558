//! How a sync goes: what it did, by tag and reason.

use std::collections::BTreeMap;

use super::pass::SyncOutcome;

/// How a sync goes, since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncStatus {
    counts: BTreeMap<(Box<str>, &'static str, &'static str), u64>,
    /// Batches that were looked at.
    pub passes: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// One counter of a sync.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncCount<'a> {
    /// The tag of the jobs.
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

    pub(super) fn count(&mut self, tag: &str, outcome: &SyncOutcome) {
        let (what, reason) = match outcome {
            SyncOutcome::Done(reason) => ("done", reason.name()),
            SyncOutcome::Written(reason) => ("written", reason.name()),
            SyncOutcome::Rejected(error) => {
                self.last_error = Some(error.clone());
                ("rejected", "")
            }
            SyncOutcome::Failed(error) => {
                self.last_error = Some(error.clone());
                ("failed", "")
            }
            SyncOutcome::Rescheduled(error) => {
                self.last_error = Some(error.clone());
                ("rescheduled", "")
            }
        };
        *self.counts.entry((tag.into(), what, reason)).or_default() += 1;
    }
}
