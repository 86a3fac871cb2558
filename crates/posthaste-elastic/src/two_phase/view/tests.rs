use super::*;
use crate::two_phase::{Fence, Transaction};

fn version(number: i64, document: &Document) -> Option<DocumentVersion> {
    let seen = Seen {
        seq_no: 0,
        primary_term: 1,
    };
    Some(DocumentVersion {
        number,
        seen,
        document: document.clone(),
    })
}

fn account(balance: i64) -> Document {
    Document {
        balance,
        ..Document::default()
    }
}

/// A transfer of 3 from a to b, with all states of these documents, each with its version.
struct Life {
    a: Vec<Document>,
    b: Vec<Document>,
    transfer: Transaction,
}

fn life() -> Life {
    let transfer = Transaction::transfer("t", "a", "b", 3).unwrap();
    let of = |balance, at: usize| {
        let new = account(balance);
        let mut held = new.clone();
        let effect = &transfer.effects()[at];
        held.hold(transfer.id(), effect, Fence(0)).unwrap();
        let mut settled = held.clone();
        settled.settle(transfer.id(), Fence(7));
        vec![new, held, settled]
    };
    Life {
        a: of(10, 0),
        b: of(5, 1),
        transfer,
    }
}

fn snapshot(life: &Life, a: usize, b: usize) -> Snapshot {
    let at = |documents: &[Document], at: usize| version(at as i64 + 1, &documents[at]);
    Snapshot(vec![at(&life.a, a), at(&life.b, b)])
}

fn known(life: &Life, states: [State; 2]) -> KnownTransactions {
    let mut known = KnownTransactions::default();
    for state in states {
        known.advance_snapshot();
        if !known.is_decided(life.transfer.id()) {
            let record = Record::new(&life.transfer, state);
            known.add(life.transfer.id().clone(), Some(record));
        }
    }
    known
}

#[test]
fn two_snapshots_count_a_transfer_on_both_sides_or_neither() {
    let life = life();
    let (mut seen, mut times) = (BTreeSet::new(), 0);
    // Documents and the transaction only advance between snapshots: a hold before the commit, a
    // settle after it.
    for (a0, b0) in pairs() {
        for (a1, b1) in pairs().filter(|(a1, b1)| *a1 >= a0 && *b1 >= b0) {
            for states in [
                [State::Pending, State::Pending],
                [State::Pending, State::Committed],
                [State::Committed, State::Committed],
            ] {
                // After a snapshot with a settled document the transaction is committed; if it
                // is, both documents were held.
                let possible = (a0.max(b0) < 2 || states[0] == State::Committed)
                    && (a1.max(b1) < 2 || states[1] == State::Committed)
                    && (states[0] == State::Pending || a1.min(b1) > 0);
                if !possible {
                    continue;
                }
                times += 1;
                let known = known(&life, states);
                let now = snapshot(&life, a1, b1);
                let names = ["a", "b"];
                if let Some(views) = now.views_after(&snapshot(&life, a0, b0), &known, &names) {
                    let totals: Vec<_> = views.into_iter().map(|one| one.unwrap().total).collect();
                    assert!(
                        totals == [10, 5] || totals == [7, 8],
                        "{a0}{b0} {a1}{b1} {states:?}: {totals:?}"
                    );
                    seen.insert(totals);
                }
            }
        }
    }
    assert_eq!(seen.len(), 2, "of {times}");
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|a| (0..3).map(move |b| (a, b)))
}

#[test]
fn the_winner_of_two_later_sets_is_unknown() {
    let life = life();
    let still = snapshot(&life, 0, 0);
    let set = |id: &str| {
        let values = Map::from_iter([("owner".to_owned(), id.into())]);
        Transaction::new(id, vec![Effect::set("a", values), Effect::add("b", 1)]).unwrap()
    };
    // Open after the previous snapshot, committed after this one, not held when read.
    let mut known = KnownTransactions::default();
    for (state, setters) in [(State::Pending, 2), (State::Committed, 1)] {
        known.advance_snapshot();
        for setter in ["z", "m"].into_iter().take(setters).map(set) {
            let record = Record::new(&setter, state);
            known.add(setter.id().clone(), Some(record));
        }
    }
    let result = still.views_after(&still, &known, &["a", "b"]).unwrap();
    assert_eq!(result[0].as_ref().unwrap().data["owner"], "z");
    let also = set("m");
    let record = Record::new(&also, State::Committed);
    known.add(also.id().clone(), Some(record));
    assert_eq!(still.views_after(&still, &known, &["a", "b"]), None);
}

#[test]
fn changes_between_reads_are_detected_by_version() {
    let life = life();
    let known = KnownTransactions {
        snapshots: 2,
        ..KnownTransactions::default()
    };
    // No snapshot has the transfer held, and one side is settled.
    let now = snapshot(&life, 2, 0);
    assert_eq!(
        now.views_after(&snapshot(&life, 0, 0), &known, &["a", "b"]),
        None
    );
    let still = snapshot(&life, 0, 0);
    assert!(still.views_after(&still, &known, &["a", "b"]).is_some());
}
