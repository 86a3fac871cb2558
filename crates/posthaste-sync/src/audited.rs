//! What an audit found.

use std::collections::BTreeMap;

/// This many differences are named, beside being counted.
pub(super) const NAMED: usize = 100;

/// How a document differs from its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The index does not have it.
    Missing,
    /// The index has an older version.
    Stale,
    /// The index has it, and there is no such row, or it must not be found.
    Orphaned,
    /// The index has a version that Postgres does not know.
    Ahead,
    /// The index has the row's version, and other contents: somebody has changed the row past its
    /// triggers, or the document past the sync.
    Altered,
    /// Nothing can be read of its row: the statement for it fails with this id.
    Unreadable,
}

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Audited {
    /// Rows that may be found.
    pub rows: u64,
    /// Documents in the index, without what deletions left.
    pub documents: u64,
    /// Documents that the index lacks.
    pub missing: u64,
    /// Documents of an older version.
    pub stale: u64,
    /// Documents without a row, and such that no sync wrote.
    pub orphaned: u64,
    /// Documents of a version that Postgres does not know.
    pub ahead: u64,
    /// Documents of the row's version with other contents, as far as these were [checked
    /// at](super::Audit::contents).
    pub altered: u64,
    /// Ids with which nothing can be read of a row: whether it differs is not known, and nothing is
    /// repaired.
    pub unreadable: u64,
    /// Documents that differ, and whose rows have a job that is still to come: none of the above.
    pub pending: u64,
    /// How many of all these were seen to be true after they were written or deleted.
    pub repaired: u64,
    /// How many differed again after that, because their rows had changed meanwhile: they have jobs
    /// of their own.
    pub changed: u64,
    /// Why documents were not written when they were to be repaired, and how many for each reason.
    pub reasons: BTreeMap<String, u64>,
    /// The first hundred of them.
    pub named: Vec<(String, Difference)>,
}

impl Audited {
    /// Whether both sides were equal, by id and version, and by contents if these were checked; but
    /// for documents that are [pending](Self::pending).
    pub fn is_equal(&self) -> bool {
        self.differences() == 0
    }

    /// How many documents differed.
    pub fn differences(&self) -> u64 {
        let by_version = self.missing + self.stale + self.orphaned + self.ahead;
        by_version + self.altered + self.unreadable
    }

    /// How many of them could not be repaired.
    pub fn unrepaired(&self) -> u64 {
        self.differences() - self.repaired - self.changed
    }

    /// Counts documents that were not written, by reason.
    pub(super) fn count(&mut self, unwritten: impl IntoIterator<Item = (String, String)>) {
        for (_, reason) in unwritten {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    pub(super) fn note(&mut self, id: &str, difference: Difference) {
        *match difference {
            Difference::Missing => &mut self.missing,
            Difference::Stale => &mut self.stale,
            Difference::Orphaned => &mut self.orphaned,
            Difference::Ahead => &mut self.ahead,
            Difference::Altered => &mut self.altered,
            Difference::Unreadable => &mut self.unreadable,
        } += 1;
        if self.named.len() < NAMED {
            self.named.push((id.to_owned(), difference));
        }
    }
}
