//! How a sync goes: what it did, by tag and reason.

use std::collections::BTreeMap;

use super::pass::Fate;

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
    /// What was done: `written`, `done`, `failed` or `put_off`.
    pub what: &'a str,
    /// Why, as [`Reason::name`](super::Reason::name) has it; empty for what failed or was put off.
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

    pub(super) fn count(&mut self, tag: &str, fate: &Fate) {
        let (what, reason) = match fate {
            Fate::Done(reason) => ("done", reason.name()),
            Fate::Written(reason) => ("written", reason.name()),
            Fate::Failed(error) => {
                self.last_error = Some(error.clone());
                ("failed", "")
            }
            Fate::PutOff(error) => {
                self.last_error = Some(error.clone());
                ("put_off", "")
            }
        };
        *self.counts.entry((tag.into(), what, reason)).or_default() += 1;
    }
}
