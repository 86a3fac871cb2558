use super::{IndexedVersion, Mark, Reason, RowState, SyncStep, decide};

const FORCE: bool = true;

fn live(version: i64, pass: u16) -> Option<IndexedVersion> {
    let mark = Mark { version, pass };
    Some(IndexedVersion {
        mark,
        token: 0,
        is_live: true,
        is_altered: false,
        is_foreign: false,
    })
}

/// The entry that hiding a row leaves.
fn hidden(version: i64, pass: u16) -> Option<IndexedVersion> {
    let is_live = false;
    live(version, pass).map(|seen| IndexedVersion { is_live, ..seen })
}

fn dead(version: i64) -> Option<IndexedVersion> {
    Some(IndexedVersion {
        mark: Mark::deletion(version),
        token: 0,
        is_live: false,
        is_altered: false,
        is_foreign: false,
    })
}

/// A row of version 5, a hidden row of version 5, a deletion of version 5, and no row, each with
/// every possible state of the index.
#[test]
fn every_row_and_index_state_has_its_decision() {
    use Reason::{Deleted, Different, Equal, Forced, Missing, Neither};
    let row = RowState::Live { version: 5 };
    let gone = RowState::Dead { version: 5 };
    let unseen = RowState::Hidden { version: 5 };
    let hide = |version, pass| SyncStep::Delete(Mark { version, pass }, Deleted);
    let forced_hide = |pass| SyncStep::Delete(Mark { version: 5, pass }, Forced);
    let write = |pass, why| SyncStep::Write(Mark { version: 5, pass }, why);
    let delete = |version| SyncStep::Delete(Mark::deletion(version), Deleted);
    let ahead = |version, pass| SyncStep::Ahead(Mark { version, pass });
    let last = Mark::DELETION_PASS;
    let table = [
        // A row: the index has nothing, something older, the same, something newer.
        (row, None, !FORCE, write(0, Missing)),
        (row, live(4, 0), !FORCE, write(0, Different)),
        (row, live(4, 7), !FORCE, write(0, Different)),
        (row, live(5, 0), !FORCE, SyncStep::Done(Equal)),
        (row, live(5, 3), !FORCE, SyncStep::Done(Equal)),
        (row, live(6, 0), !FORCE, ahead(6, 0)),
        // Created again after a deletion that the index shows.
        (row, dead(4), !FORCE, write(0, Missing)),
        (row, dead(5), !FORCE, ahead(5, last)),
        (row, dead(6), !FORCE, ahead(6, last)),
        // Forced writes prevail over any entry of the same version.
        (row, None, FORCE, write(0, Forced)),
        (row, live(4, 9), FORCE, write(0, Forced)),
        (row, live(5, 0), FORCE, write(1, Forced)),
        (row, live(5, 3), FORCE, write(4, Forced)),
        (row, live(5, last - 1), FORCE, ahead(5, last - 1)),
        (row, live(6, 0), FORCE, ahead(6, 0)),
        (row, dead(4), FORCE, write(0, Forced)),
        (row, dead(5), FORCE, ahead(5, last)),
        // Hiding a row writes a mark above the existing one, and so does showing it again.
        (unseen, None, !FORCE, hide(5, 0)),
        (unseen, live(4, 3), !FORCE, hide(5, 0)),
        (unseen, live(5, 0), !FORCE, hide(5, 1)),
        (unseen, live(5, 3), !FORCE, hide(5, 4)),
        (unseen, live(5, last - 1), !FORCE, hide(5, last)),
        (unseen, live(6, 2), !FORCE, delete(6)),
        (unseen, hidden(4, 2), !FORCE, hide(5, 0)),
        (unseen, hidden(5, 1), !FORCE, SyncStep::Done(Neither)),
        (unseen, hidden(6, 1), FORCE, SyncStep::Done(Neither)),
        (unseen, None, FORCE, forced_hide(0)),
        (unseen, live(5, 3), FORCE, forced_hide(4)),
        (unseen, hidden(5, 1), FORCE, forced_hide(2)),
        (unseen, dead(5), FORCE, SyncStep::Done(Neither)),
        (unseen, dead(5), !FORCE, SyncStep::Done(Neither)),
        (row, hidden(4, 1), !FORCE, write(0, Missing)),
        (row, hidden(5, 0), !FORCE, write(1, Missing)),
        (row, hidden(5, 1), FORCE, write(2, Forced)),
        (row, hidden(5, last - 1), FORCE, ahead(5, last - 1)),
        (gone, hidden(5, 1), !FORCE, SyncStep::Done(Neither)),
        (gone, hidden(4, 1), !FORCE, delete(5)),
        (
            RowState::Gone,
            hidden(5, 1),
            !FORCE,
            SyncStep::Done(Neither),
        ),
        // A deletion leaves its mark even if the index lacks the document.
        (gone, None, !FORCE, delete(5)),
        (gone, live(4, 0), !FORCE, delete(5)),
        (gone, live(5, 2), !FORCE, delete(5)),
        (gone, live(6, 0), !FORCE, delete(6)),
        (gone, dead(4), !FORCE, delete(5)),
        (gone, dead(5), !FORCE, SyncStep::Done(Neither)),
        (gone, dead(6), !FORCE, SyncStep::Done(Neither)),
        (gone, dead(5), FORCE, SyncStep::Done(Neither)),
        // No row, and the version of its deletion is unknown.
        (RowState::Gone, None, !FORCE, SyncStep::Done(Neither)),
        (RowState::Gone, live(4, 0), !FORCE, delete(4)),
        (RowState::Gone, dead(4), !FORCE, SyncStep::Done(Neither)),
        (RowState::Gone, live(4, 0), FORCE, delete(4)),
        (RowState::Gone, None, FORCE, SyncStep::Done(Neither)),
    ];
    for (row_state, seen, force, step) in table {
        assert_eq!(
            decide(row_state, seen, force),
            step,
            "{row_state:?} {seen:?} {force}"
        );
    }
}

#[test]
fn altered_documents_are_rewritten_with_the_next_mark() {
    let altered = |seen: Option<IndexedVersion>| {
        let is_altered = true;
        seen.map(|seen| IndexedVersion { is_altered, ..seen })
    };
    let row = RowState::Live { version: 5 };
    let write = |pass| SyncStep::Write(Mark { version: 5, pass }, Reason::Different);
    let last = Mark::DELETION_PASS;
    let unable = Mark {
        version: 5,
        pass: last - 1,
    };
    for (seen, step) in [
        (live(5, 1), write(2)),
        (live(4, 1), write(0)),
        (live(5, last - 1), SyncStep::Ahead(unable)),
    ] {
        assert_eq!(decide(row, altered(seen), !FORCE), step, "{seen:?}");
    }
    let gone = decide(RowState::Gone, altered(live(5, 1)), !FORCE);
    assert_eq!(gone, SyncStep::Delete(Mark::deletion(5), Reason::Deleted));
}

#[test]
fn decided_writes_have_a_larger_mark_than_the_entry() {
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
            for row_state in [
                RowState::Live { version },
                RowState::Hidden { version },
                RowState::Dead { version },
                RowState::Gone,
            ] {
                for force in [false, true] {
                    if let SyncStep::Write(mark, _) | SyncStep::Delete(mark, _) =
                        decide(row_state, seen, force)
                    {
                        let before = seen.map(|seen| seen.mark);
                        assert!(
                            before.is_none_or(|before| mark > before),
                            "{row_state:?} {seen:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Checks of a row that is hidden and shown at one version. Their writes arrive in any order, long
/// after the check or never. A forced check that reads back its own write makes the index match
/// Postgres, whatever arrives later.
#[test]
fn a_forced_check_prevails_over_late_writes_of_its_version() {
    for seed in 0..5_000 {
        let mut state: u64 = seed;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut seen, mut late): (Option<IndexedVersion>, Vec<IndexedVersion>) =
            (None, Vec::new());
        let decide_write = |seen, is_shown, force, token| {
            let row_state = match is_shown {
                true => RowState::Live { version: 5 },
                false => RowState::Hidden { version: 5 },
            };
            let (mark, is_live) = match decide(row_state, seen, force) {
                SyncStep::Write(mark, _) => (mark, true),
                SyncStep::Delete(mark, _) => (mark, false),
                step => {
                    assert!(matches!(step, SyncStep::Done(_)), "{seed}: {step:?}");
                    return None;
                }
            };
            Some(IndexedVersion {
                mark,
                token,
                is_live,
                is_altered: false,
                is_foreign: false,
            })
        };
        let take = |seen: &mut Option<IndexedVersion>, one: IndexedVersion| {
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
                _ => late.extend(decide_write(seen, draw(2) == 1, draw(2) == 1, 0)),
            }
        }
        let is_shown = draw(2) == 1;
        let forced = decide_write(seen, is_shown, FORCE, 1).expect("a forced check writes");
        take(&mut seen, forced);
        assert_eq!(seen, Some(forced), "{seed}");
        late.into_iter().for_each(|one| take(&mut seen, one));
        assert_eq!(seen, Some(forced), "{seed}");
        assert_eq!(forced.is_live, is_shown, "{seed}");
    }
}

#[test]
fn marks_keep_their_order_as_numbers() {
    let mut marks = Vec::new();
    for version in [0, 1, 2, 1_700_000_000_000_000, (1 << 51) - 1] {
        for pass in [0, 1, 77, Mark::DELETION_PASS] {
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
        assert_eq!(Mark::new(version).as_number(), None);
    }
}
