//! What is to be done about one document: given what Postgres has, what the index shows and whether the document is to be written anyway. Pure.

/// Of two writes of a document the one with the larger mark stays, whichever came last. The row's version decides; `pass` counts how often the same version was
/// written or hidden on purpose, and is [`LAST`](Self::LAST) in a deletion, which therefore stands above all that was written up to its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The row's version, or that of its deletion.
    pub version: i64,
    /// 0 unless the version was written again, hidden after it was written, or is that of a deletion.
    pub pass: u16,
}

impl Mark {
    /// The pass of a deletion.
    pub const LAST: u16 = (1 << Self::BITS) - 1;
    const BITS: u32 = 12;

    /// The first write of a row's version.
    pub fn of(version: i64) -> Self {
        Self { version, pass: 0 }
    }

    /// The deletion of everything up to this version.
    pub fn deletion(version: i64) -> Self {
        let pass = Self::LAST;
        Self { version, pass }
    }

    /// As one number in the same order, for indexes that keep one as their version; nothing for a version that leaves no room: below 0, or 2^51 and above.
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
pub struct Seen {
    /// The mark it was written with.
    pub mark: Mark,
    /// The token it was written with.
    pub token: i64,
    /// Whether it is there; else it is what a deletion left.
    pub is_live: bool,
}

/// What Postgres says of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// There is such a row.
    Live { version: i64 },
    /// There is such a row, which must not be found. It may be shown again at the same version: where another table says who is hidden.
    Hidden { version: i64 },
    /// It was deleted as of this version.
    Dead { version: i64 },
    /// There is no row, and nobody said when it was deleted.
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
    /// The index has something newer than Postgres, which was asked after the index. No write of this row would be taken.
    Ahead(Mark),
}

/// The whole decision. `seen` must have been read before `truth`: only then nothing but a lost commit explains an index that is ahead.
pub(crate) fn decide(truth: Truth, seen: Option<Seen>, force: bool) -> Step {
    let live = seen.filter(|seen| seen.is_live).map(|seen| seen.mark);
    let dead = seen.filter(|seen| !seen.is_live).map(|seen| seen.mark);
    match truth {
        Truth::Live { version } => match seen.map(|seen| seen.mark) {
            Some(mark) if mark.version > version => Step::Ahead(mark),
            Some(mark) if mark.version == version => match (live, force, again(mark)) {
                (Some(_), false, _) => Step::Done(Reason::Equal),
                (_, true, Some(again)) => Step::Write(again, Reason::Forced),
                // It was hidden at this version, and is shown again.
                (None, false, Some(again)) => Step::Write(again, Reason::Missing),
                // Above a deletion nothing of its version is written.
                (_, _, None) => Step::Ahead(mark),
            },
            // A direct write of the same version that comes first has another token: the next pass is above it.
            _ if force => Step::Write(Mark::of(version), Reason::Forced),
            Some(_) if live.is_some() => Step::Write(Mark::of(version), Reason::Different),
            _ => Step::Write(Mark::of(version), Reason::Missing),
        },
        // By the next mark, as whatever else was decided on by what is there: a write that comes late is refused, and the row may be shown again.
        Truth::Hidden { version } => {
            let reason = if force {
                Reason::Forced
            } else {
                Reason::Deleted
            };
            let above = |mark| again(mark).unwrap_or(Mark::deletion(version));
            match seen.map(|seen| seen.mark) {
                Some(mark) if mark.version == version => match (live, force, again(mark)) {
                    (Some(mark), _, _) => Step::Delete(above(mark), reason),
                    // It may have been shown meanwhile, by a write that is still on its way.
                    (None, true, Some(again)) => Step::Delete(again, reason),
                    _ => Step::Done(Reason::Neither),
                },
                Some(mark) if mark.version > version => match live {
                    Some(mark) => Step::Delete(Mark::deletion(mark.version), reason),
                    None => Step::Done(Reason::Neither),
                },
                _ => Step::Delete(Mark::of(version), reason),
            }
        }
        // Also where the index has nothing: what a deletion leaves there stops writes that are still on their way.
        Truth::Dead { version } => match (live, dead) {
            (_, Some(mark)) if mark.version >= version => Step::Done(Reason::Neither),
            (Some(mark), _) => {
                Step::Delete(Mark::deletion(version.max(mark.version)), Reason::Deleted)
            }
            _ => Step::Delete(Mark::deletion(version), Reason::Deleted),
        },
        // Nothing newer than what is seen may be hit: the row may have been created again.
        Truth::Gone => match live {
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
mod tests {
    use super::{Mark, Reason, Seen, Step, Truth, decide};

    const FORCE: bool = true;

    fn live(version: i64, pass: u16) -> Option<Seen> {
        let mark = Mark { version, pass };
        Some(Seen {
            mark,
            token: 0,
            is_live: true,
        })
    }

    /// What hiding a row left.
    fn hidden(version: i64, pass: u16) -> Option<Seen> {
        let is_live = false;
        live(version, pass).map(|seen| Seen { is_live, ..seen })
    }

    fn dead(version: i64) -> Option<Seen> {
        Some(Seen {
            mark: Mark::deletion(version),
            token: 0,
            is_live: false,
        })
    }

    /// A row of version 5, a deletion of version 5, and no row, each against all that an index can show.
    #[test]
    fn the_whole_table() {
        use Reason::{Deleted, Different, Equal, Forced, Missing, Neither};
        let row = Truth::Live { version: 5 };
        let gone = Truth::Dead { version: 5 };
        let unseen = Truth::Hidden { version: 5 };
        let hide = |version, pass| Step::Delete(Mark { version, pass }, Deleted);
        let forced_hide = |pass| Step::Delete(Mark { version: 5, pass }, Forced);
        let write = |pass, why| Step::Write(Mark { version: 5, pass }, why);
        let delete = |version| Step::Delete(Mark::deletion(version), Deleted);
        let ahead = |version, pass| Step::Ahead(Mark { version, pass });
        let last = Mark::LAST;
        let table = [
            // A row: the index has nothing, something older, the same, something newer.
            (row, None, !FORCE, write(0, Missing)),
            (row, live(4, 0), !FORCE, write(0, Different)),
            (row, live(4, 7), !FORCE, write(0, Different)),
            (row, live(5, 0), !FORCE, Step::Done(Equal)),
            (row, live(5, 3), !FORCE, Step::Done(Equal)),
            (row, live(6, 0), !FORCE, ahead(6, 0)),
            // Created again after a deletion that the index shows.
            (row, dead(4), !FORCE, write(0, Missing)),
            (row, dead(5), !FORCE, ahead(5, last)),
            (row, dead(6), !FORCE, ahead(6, last)),
            // Written anyway, above whatever has the same version.
            (row, None, FORCE, write(0, Forced)),
            (row, live(4, 9), FORCE, write(0, Forced)),
            (row, live(5, 0), FORCE, write(1, Forced)),
            (row, live(5, 3), FORCE, write(4, Forced)),
            (row, live(5, last - 1), FORCE, ahead(5, last - 1)),
            (row, live(6, 0), FORCE, ahead(6, 0)),
            (row, dead(4), FORCE, write(0, Forced)),
            (row, dead(5), FORCE, ahead(5, last)),
            // A row that is hidden is written over by one above what is there, and so is a row that is shown again.
            (unseen, None, !FORCE, hide(5, 0)),
            (unseen, live(4, 3), !FORCE, hide(5, 0)),
            (unseen, live(5, 0), !FORCE, hide(5, 1)),
            (unseen, live(5, 3), !FORCE, hide(5, 4)),
            (unseen, live(5, last - 1), !FORCE, hide(5, last)),
            (unseen, live(6, 2), !FORCE, delete(6)),
            (unseen, hidden(4, 2), !FORCE, hide(5, 0)),
            (unseen, hidden(5, 1), !FORCE, Step::Done(Neither)),
            (unseen, hidden(6, 1), FORCE, Step::Done(Neither)),
            (unseen, None, FORCE, forced_hide(0)),
            (unseen, live(5, 3), FORCE, forced_hide(4)),
            (unseen, hidden(5, 1), FORCE, forced_hide(2)),
            (unseen, dead(5), FORCE, Step::Done(Neither)),
            (unseen, dead(5), !FORCE, Step::Done(Neither)),
            (row, hidden(4, 1), !FORCE, write(0, Missing)),
            (row, hidden(5, 0), !FORCE, write(1, Missing)),
            (row, hidden(5, 1), FORCE, write(2, Forced)),
            (row, hidden(5, last - 1), FORCE, ahead(5, last - 1)),
            (gone, hidden(5, 1), !FORCE, Step::Done(Neither)),
            (gone, hidden(4, 1), !FORCE, delete(5)),
            (Truth::Gone, hidden(5, 1), !FORCE, Step::Done(Neither)),
            // A deletion leaves its mark wherever it does not find it.
            (gone, None, !FORCE, delete(5)),
            (gone, live(4, 0), !FORCE, delete(5)),
            (gone, live(5, 2), !FORCE, delete(5)),
            (gone, live(6, 0), !FORCE, delete(6)),
            (gone, dead(4), !FORCE, delete(5)),
            (gone, dead(5), !FORCE, Step::Done(Neither)),
            (gone, dead(6), !FORCE, Step::Done(Neither)),
            (gone, dead(5), FORCE, Step::Done(Neither)),
            // No row, and nobody knows since when.
            (Truth::Gone, None, !FORCE, Step::Done(Neither)),
            (Truth::Gone, live(4, 0), !FORCE, delete(4)),
            (Truth::Gone, dead(4), !FORCE, Step::Done(Neither)),
            (Truth::Gone, live(4, 0), FORCE, delete(4)),
            (Truth::Gone, None, FORCE, Step::Done(Neither)),
        ];
        for (truth, seen, force, step) in table {
            assert_eq!(
                decide(truth, seen, force),
                step,
                "{truth:?} {seen:?} {force}"
            );
        }
    }

    #[test]
    fn whatever_is_written_is_taken_by_the_index_that_was_seen() {
        for version in 0..8 {
            for seen in [
                None,
                live(3, 0),
                live(3, 2),
                live(4, 0),
                dead(3),
                dead(4),
                hidden(3, 0),
                hidden(4, 2),
            ] {
                for truth in [
                    Truth::Live { version },
                    Truth::Hidden { version },
                    Truth::Dead { version },
                    Truth::Gone,
                ] {
                    for force in [false, true] {
                        if let Step::Write(mark, _) | Step::Delete(mark, _) =
                            decide(truth, seen, force)
                        {
                            let before = seen.map(|seen| seen.mark);
                            assert!(
                                before.is_none_or(|before| mark > before),
                                "{truth:?} {seen:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Looks at a row that is hidden and shown at one version, whose writes come in any order, long after the look or never: a forced look that saw its own write
    /// has made it as Postgres says, whatever comes afterwards.
    #[test]
    fn a_row_that_is_hidden_and_shown_at_one_version_comes_to_what_it_is() {
        for seed in 0..5_000 {
            let mut state: u64 = seed;
            let mut draw = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (mut seen, mut late): (Option<Seen>, Vec<Seen>) = (None, Vec::new());
            let look = |seen, is_shown, force, token| {
                let truth = match is_shown {
                    true => Truth::Live { version: 5 },
                    false => Truth::Hidden { version: 5 },
                };
                let (mark, is_live) = match decide(truth, seen, force) {
                    Step::Write(mark, _) => (mark, true),
                    Step::Delete(mark, _) => (mark, false),
                    step => {
                        assert!(matches!(step, Step::Done(_)), "{seed}: {step:?}");
                        return None;
                    }
                };
                Some(Seen {
                    mark,
                    token,
                    is_live,
                })
            };
            let take = |seen: &mut Option<Seen>, one: Seen| {
                if seen.is_none_or(|seen| seen.mark < one.mark) {
                    *seen = Some(one);
                }
            };
            for _ in 0..4 + draw(26) {
                match draw(2) == 1 {
                    true if !late.is_empty() => {
                        let one = late.swap_remove(draw(late.len() as u64) as usize);
                        take(&mut seen, one);
                    }
                    _ => late.extend(look(seen, draw(2) == 1, draw(2) == 1, 0)),
                }
            }
            let is_shown = draw(2) == 1;
            let forced = look(seen, is_shown, FORCE, 1).expect("a forced look writes");
            take(&mut seen, forced);
            assert_eq!(seen, Some(forced), "{seed}");
            late.into_iter().for_each(|one| take(&mut seen, one));
            assert_eq!(seen, Some(forced), "{seed}");
            assert_eq!(forced.is_live, is_shown, "{seed}");
        }
    }

    #[test]
    fn a_mark_as_one_number_keeps_its_order() {
        let mut marks = Vec::new();
        for version in [0, 1, 2, 1_700_000_000_000_000, (1 << 51) - 1] {
            for pass in [0, 1, 77, Mark::LAST] {
                marks.push(Mark { version, pass });
            }
        }
        let numbers: Vec<i64> = marks
            .iter()
            .map(|mark| mark.as_number().expect("fits"))
            .collect();
        assert!(marks.is_sorted() && numbers.is_sorted() && numbers[0] == 0);
        let back: Vec<Mark> = numbers.into_iter().map(Mark::from_number).collect();
        assert_eq!(back, marks);
        for version in [-1, 1 << 51, i64::MAX] {
            assert_eq!(Mark::of(version).as_number(), None);
        }
    }
}
