//! The decision about one document, given the row's state, the index's state, and whether the
//! document is forced to be written. Pure.

/// The order of writes of a document: the write with the larger mark prevails, in whatever order
/// they arrive. The row's version decides first. `pass` counts how often the same version was
/// rewritten or hidden deliberately; a deletion has [`DELETION_PASS`](Self::DELETION_PASS), and
/// therefore prevails over everything written up to its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The version of the row, or of its deletion.
    pub version: i64,
    /// 0 for the first write of a version; larger if the version was written again, hidden after it
    /// was written, or deleted.
    pub pass: u16,
}

impl Mark {
    /// The pass of a deletion.
    pub const DELETION_PASS: u16 = (1 << Self::PASS_BITS) - 1;
    const PASS_BITS: u32 = 12;

    /// Returns the mark of the first write of a row's version.
    pub fn new(version: i64) -> Self {
        Self { version, pass: 0 }
    }

    /// Returns the mark of a deletion of everything up to this version.
    pub fn deletion(version: i64) -> Self {
        let pass = Self::DELETION_PASS;
        Self { version, pass }
    }

    /// Returns the mark as one number with the same order, for indexes that store a single version
    /// number; `None` if the version is below 0, or 2^51 or above.
    pub fn as_number(self) -> Option<i64> {
        let fits = (0..1 << (63 - Self::PASS_BITS)).contains(&self.version)
            && self.pass <= Self::DELETION_PASS;
        fits.then(|| self.version << Self::PASS_BITS | i64::from(self.pass))
    }

    /// Converts a number that [`as_number`](Self::as_number) returned back to its mark.
    pub fn from_number(number: i64) -> Self {
        Self {
            version: number >> Self::PASS_BITS,
            pass: (number & i64::from(Self::DELETION_PASS)) as u16,
        }
    }
}

/// The state of a document in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedVersion {
    /// The mark that the document was written with.
    pub mark: Mark,
    /// The token that the document was written with.
    pub token: i64,
    /// Whether the document exists; false for the mark of a deletion.
    pub is_live: bool,
    /// Whether another client has written the document since: its version is then that client's,
    /// and its contents are unknown.
    pub is_altered: bool,
    /// Whether no sync wrote the document: it counts among the [unmanaged](crate::Index::unmanaged)
    /// ones.
    pub is_foreign: bool,
}

/// The state of a document's row in Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    /// The row exists.
    Live { version: i64 },
    /// The row exists and is hidden from searches. It may be shown again at the same version, if
    /// another table decides which rows are hidden.
    Hidden { version: i64 },
    /// The row was deleted with this version.
    Dead { version: i64 },
    /// The row does not exist, and the version of its deletion is unknown.
    Gone,
}

/// The reason why a document was written or deleted, or why that was unnecessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The index lacked the document.
    Missing,
    /// The index had another version of it.
    Different,
    /// The write was forced, whatever the index had.
    Forced,
    /// The row does not exist in Postgres, or is hidden.
    Deleted,
    /// The index has the row's version.
    Equal,
    /// Neither Postgres nor the index has it.
    Neither,
}

impl Reason {
    /// Returns the reason as one word, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Different => "different",
            Self::Forced => "forced",
            Self::Deleted => "deleted",
            Self::Equal => "equal",
            Self::Neither => "neither",
        }
    }
}

/// The step that is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncStep {
    /// Write the row with this mark.
    Write(Mark, Reason),
    /// Delete it with this mark.
    Delete(Mark, Reason),
    /// Nothing remains to be done.
    Done(Reason),
    /// The index has something newer than Postgres, although Postgres was read after the index. The
    /// index would refuse any write of this row.
    Ahead(Mark),
}

/// Decides what to do about a document. `seen` must have been read before `row_state`: only then a
/// lost commit is the sole explanation of an index that is ahead.
pub(crate) fn decide(row_state: RowState, seen: Option<IndexedVersion>, force: bool) -> SyncStep {
    let is_altered = seen.is_some_and(|seen| seen.is_altered);
    let live = seen.filter(|seen| seen.is_live).map(|seen| seen.mark);
    let dead = seen.filter(|seen| !seen.is_live).map(|seen| seen.mark);
    match row_state {
        RowState::Live { version } => match seen.map(|seen| seen.mark) {
            Some(mark) if mark.version > version => SyncStep::Ahead(mark),
            Some(mark) if mark.version == version => match (live, force, next_pass(mark)) {
                (Some(_), false, _) if !is_altered => SyncStep::Done(Reason::Equal),
                (Some(_), false, Some(again)) => SyncStep::Write(again, Reason::Different),
                (_, true, Some(again)) => SyncStep::Write(again, Reason::Forced),
                // The row was hidden at this version, and is shown again.
                (None, false, Some(again)) => SyncStep::Write(again, Reason::Missing),
                // No write of this version prevails over its deletion.
                (_, _, None) => SyncStep::Ahead(mark),
            },
            // A direct write of the same version that arrives first has another token: the next
            // pass prevails over it.
            _ if force => SyncStep::Write(Mark::new(version), Reason::Forced),
            Some(_) if live.is_some() => SyncStep::Write(Mark::new(version), Reason::Different),
            _ => SyncStep::Write(Mark::new(version), Reason::Missing),
        },
        // With the next mark after the one seen, as for other writes: the index refuses a late
        // write, and the row may be shown again.
        RowState::Hidden { version } => {
            let reason = if force {
                Reason::Forced
            } else {
                Reason::Deleted
            };
            let above = |mark| next_pass(mark).unwrap_or(Mark::deletion(version));
            match seen.map(|seen| seen.mark) {
                Some(mark) if mark.version == version => match (live, force, next_pass(mark)) {
                    (Some(mark), _, _) => SyncStep::Delete(above(mark), reason),
                    // A write in transit may show the row again.
                    (None, true, Some(again)) => SyncStep::Delete(again, reason),
                    _ => SyncStep::Done(Reason::Neither),
                },
                Some(mark) if mark.version > version => match live {
                    Some(mark) => SyncStep::Delete(Mark::deletion(mark.version), reason),
                    None => SyncStep::Done(Reason::Neither),
                },
                _ => SyncStep::Delete(Mark::new(version), reason),
            }
        }
        // Also if the index has nothing: the mark of a deletion refuses writes that are still in
        // transit.
        RowState::Dead { version } => match (live, dead) {
            (_, Some(mark)) if mark.version >= version => SyncStep::Done(Reason::Neither),
            (Some(mark), _) => {
                SyncStep::Delete(Mark::deletion(version.max(mark.version)), Reason::Deleted)
            }
            _ => SyncStep::Delete(Mark::deletion(version), Reason::Deleted),
        },
        // Deletes nothing newer than the mark seen: the row may have been created again.
        RowState::Gone => match live {
            Some(mark) => SyncStep::Delete(Mark::deletion(mark.version), Reason::Deleted),
            None => SyncStep::Done(Reason::Neither),
        },
    }
}

/// Returns the mark of the next write of the same version, or `None` if no pass is left.
fn next_pass(mark: Mark) -> Option<Mark> {
    let pass = mark.pass + 1;
    (pass < Mark::DELETION_PASS).then_some(Mark { pass, ..mark })
}

#[cfg(test)]
mod tests;
