//! The result of an audit.

use std::collections::BTreeMap;

/// The most differences that are named; all are counted.
pub(super) const MAX_NAMED_DIFFERENCES: usize = 100;

/// The difference between a document and its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The index lacks the document.
    Missing,
    /// The index has an older version.
    Stale,
    /// The index has the document, but the row does not exist or is hidden.
    Orphaned,
    /// The index has a version that Postgres does not have.
    Ahead,
    /// The index has the row's version with other contents: a client changed the row without its
    /// triggers, or the document without the sync.
    Altered,
    /// The row cannot be read: the statement fails for this id.
    Unreadable,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditReport {
    /// Rows that searches may find.
    pub rows: u64,
    /// Documents in the index, without the marks of deletions.
    pub documents: u64,
    /// Documents that the index lacks.
    pub missing: u64,
    /// Documents of an older version.
    pub stale: u64,
    /// Documents without a row, and documents that no sync wrote.
    pub orphaned: u64,
    /// Documents of a version that Postgres does not have.
    pub ahead: u64,
    /// Documents of the row's version with other contents, if [contents](super::Audit::contents)
    /// were checked.
    pub altered: u64,
    /// Ids whose rows cannot be read: whether they differ is unknown, and nothing is repaired.
    pub unreadable: u64,
    /// Documents that differ and whose rows have a pending job. They are not included in any of the
    /// above.
    pub pending: u64,
    /// The number of these differences that were verified as equal after a write or a deletion.
    pub repaired: u64,
    /// The number of documents that differed again after the repair because their rows had changed:
    /// those changes have jobs of their own.
    pub changed: u64,
    /// The reasons why documents were not written during the repair, each with the number of
    /// documents.
    pub reasons: BTreeMap<String, u64>,
    /// The first hundred differences.
    pub named: Vec<(String, Difference)>,
}

impl AuditReport {
    /// Returns whether both sides were equal by id and version, and by contents if these were
    /// checked, apart from [pending](Self::pending) documents.
    pub fn is_equal(&self) -> bool {
        self.differences() == 0
    }

    /// Returns the number of documents that differed.
    pub fn differences(&self) -> u64 {
        let by_version = self.missing + self.stale + self.orphaned + self.ahead;
        by_version + self.altered + self.unreadable
    }

    /// Returns the number of differing documents that could not be repaired.
    pub fn unrepaired(&self) -> u64 {
        self.differences() - self.repaired - self.changed
    }

    /// Counts documents that were not written, by reason.
    pub(super) fn count_unwritten(
        &mut self,
        unwritten: impl IntoIterator<Item = (String, String)>,
    ) {
        for (_, reason) in unwritten {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    pub(super) fn note_difference(&mut self, id: &str, difference: Difference) {
        *match difference {
            Difference::Missing => &mut self.missing,
            Difference::Stale => &mut self.stale,
            Difference::Orphaned => &mut self.orphaned,
            Difference::Ahead => &mut self.ahead,
            Difference::Altered => &mut self.altered,
            Difference::Unreadable => &mut self.unreadable,
        } += 1;
        if self.named.len() < MAX_NAMED_DIFFERENCES {
            self.named.push((id.to_owned(), difference));
        }
    }
}
