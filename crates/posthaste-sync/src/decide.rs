//! What is to be done about one document: given what Postgres has, what the index shows and whether
//! the document is to be written anyway. Pure.

/// Of two writes of a document the one with the larger mark stays, whichever came last. The row's
/// version decides; `pass` counts how often the same version was written or hidden on purpose, and
/// is [`LAST`](Self::LAST) in a deletion, which therefore stands above all that was written up to
/// its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The row's version, or that of its deletion.
    pub version: i64,
    /// 0 unless the version was written again, hidden after it was written, or is that of a
    /// deletion.
    pub pass: u16,
}

impl Mark {
    /// The pass of a deletion.
    pub const LAST: u16 = (1 << Self::BITS) - 1;
    const BITS: u32 = 12;

    /// The first write of a row's version.
    pub fn new(version: i64) -> Self {
        Self { version, pass: 0 }
    }

    /// The deletion of everything up to this version.
    pub fn deletion(version: i64) -> Self {
        let pass = Self::LAST;
        Self { version, pass }
    }

    /// As one number in the same order, for indexes that keep one as their version; nothing for a
    /// version that leaves no room: below 0, or 2^51 and above.
    pub fn as_number(self) -> Option<i64> {
        let fits = (0..1 << (63 - Self::BITS)).contains(&self.version) && self.pass <= Self::LAST;
        fits.then(|| self.version << Self::BITS | i64::from(self.pass))
    }

    /// The mark that [`as_number`](Self::as_number) made this of.
    pub fn from_number(number: i64) -> Self {
        Self {
            version: number >> Self::BITS,
            pass: (number & i64::from(Self::LAST)) as u16,
        }
    }
}

/// What an index shows of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedVersion {
    /// The mark it was written with.
    pub mark: Mark,
    /// The token it was written with.
    pub token: i64,
    /// Whether it is there; else it is what a deletion left.
    pub is_live: bool,
    /// Somebody else has written it since, under a mark of its own: it may hold anything.
    pub is_altered: bool,
    /// No sync wrote it: it counts among those that are [unmanaged](crate::Index::unmanaged).
    pub is_foreign: bool,
}

/// What Postgres says of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    /// There is such a row.
    Live { version: i64 },
    /// There is such a row, which must not be found. It may be shown again at the same version:
    /// where another table says who is hidden.
    Hidden { version: i64 },
    /// It was deleted as of this version.
    Dead { version: i64 },
    /// There is no row, and the time of its deletion is unknown.
    Gone,
}

/// Why something was done, or why nothing had to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The index did not have the document.
    Missing,
    /// The index had another version of it.
    Different,
    /// It was to be written whatever the index had.
    Forced,
    /// Postgres has no such row any more.
    Deleted,
    /// The index has the row's version.
    Equal,
    /// Neither Postgres nor the index has it.
    Neither,
}

impl Reason {
    /// One word, for metrics.
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

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the row with this mark.
    Write(Mark, Reason),
    /// Delete it with this mark.
    Delete(Mark, Reason),
    /// Nothing, for ever.
    Done(Reason),
    /// The index has something newer than Postgres, which was asked after the index. No write of
    /// this row would be taken.
    Ahead(Mark),
}

/// The whole decision. `seen` must have been read before `truth`: only then nothing but a lost
/// commit explains an index that is ahead.
pub(crate) fn decide(row_state: RowState, seen: Option<IndexedVersion>, force: bool) -> Step {
    let is_altered = seen.is_some_and(|seen| seen.is_altered);
    let live = seen.filter(|seen| seen.is_live).map(|seen| seen.mark);
    let dead = seen.filter(|seen| !seen.is_live).map(|seen| seen.mark);
    match row_state {
        RowState::Live { version } => match seen.map(|seen| seen.mark) {
            Some(mark) if mark.version > version => Step::Ahead(mark),
            Some(mark) if mark.version == version => match (live, force, again(mark)) {
                (Some(_), false, _) if !is_altered => Step::Done(Reason::Equal),
                (Some(_), false, Some(again)) => Step::Write(again, Reason::Different),
                (_, true, Some(again)) => Step::Write(again, Reason::Forced),
                // It was hidden at this version, and is shown again.
                (None, false, Some(again)) => Step::Write(again, Reason::Missing),
                // Above a deletion nothing of its version is written.
                (_, _, None) => Step::Ahead(mark),
            },
            // A direct write of the same version that comes first has another token: the next pass
            // is above it.
            _ if force => Step::Write(Mark::new(version), Reason::Forced),
            Some(_) if live.is_some() => Step::Write(Mark::new(version), Reason::Different),
            _ => Step::Write(Mark::new(version), Reason::Missing),
        },
        // By the next mark, as whatever else was decided on by what is there: a write that comes
        // late is refused, and the row may be shown again.
        RowState::Hidden { version } => {
            let reason = if force {
                Reason::Forced
            } else {
                Reason::Deleted
            };
            let above = |mark| again(mark).unwrap_or(Mark::deletion(version));
            match seen.map(|seen| seen.mark) {
                Some(mark) if mark.version == version => match (live, force, again(mark)) {
                    (Some(mark), _, _) => Step::Delete(above(mark), reason),
                    // It may have been shown meanwhile, by a write that is still in transit.
                    (None, true, Some(again)) => Step::Delete(again, reason),
                    _ => Step::Done(Reason::Neither),
                },
                Some(mark) if mark.version > version => match live {
                    Some(mark) => Step::Delete(Mark::deletion(mark.version), reason),
                    None => Step::Done(Reason::Neither),
                },
                _ => Step::Delete(Mark::new(version), reason),
            }
        }
        // Also where the index has nothing: what a deletion leaves there stops writes that are
        // still in transit.
        RowState::Dead { version } => match (live, dead) {
            (_, Some(mark)) if mark.version >= version => Step::Done(Reason::Neither),
            (Some(mark), _) => {
                Step::Delete(Mark::deletion(version.max(mark.version)), Reason::Deleted)
            }
            _ => Step::Delete(Mark::deletion(version), Reason::Deleted),
        },
        // Nothing newer than what is seen may be hit: the row may have been created again.
        RowState::Gone => match live {
            Some(mark) => Step::Delete(Mark::deletion(mark.version), Reason::Deleted),
            None => Step::Done(Reason::Neither),
        },
    }
}

/// The mark of the next write of the same version.
fn again(mark: Mark) -> Option<Mark> {
    let pass = mark.pass + 1;
    (pass < Mark::LAST).then_some(Mark { pass, ..mark })
}

#[cfg(test)]
mod tests;
