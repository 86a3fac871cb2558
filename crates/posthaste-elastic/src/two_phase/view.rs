//! Consistent reads of documents: each transaction is counted wholly or not at all, while some are
//! open.
//!
//! A settled document no longer shows for which transactions it was settled, so documents that are
//! read one after the other may include a transaction in one and not in another. Two snapshots show
//! that: between them each hold that was added or removed is one write, and a document's version
//! counts its writes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use super::coordinator::Coordinator;
use super::document::Document;
use super::failure::Failure;
use super::state::State;
use super::stored::Record;
use super::transaction::{Effect, TransactionId};
use crate::{Seen, Source};

/// The most snapshots of a read. More than two are needed only if a process repeats a step in
/// between.
const MAX_SNAPSHOTS: usize = 32;

/// The content of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DocumentView {
    /// The amount that can be spent when the document was read: the balance minus the amounts that
    /// open transactions may still take. Never negative.
    pub available: i64,
    /// The balance with every committed transaction settled and no open one counted.
    pub total: i64,
    /// The values that the same transactions set.
    pub data: Map<String, Value>,
}

impl Coordinator {
    /// Reads a document. The result is right as of one moment during the call, except for
    /// transactions committed during it: some may be counted and others not.
    ///
    /// # Errors
    /// The document or its transactions could not be read.
    pub async fn view(&self, document: &str) -> Result<Option<DocumentView>, Failure> {
        let mut views = self.views(&[document]).await?;
        Ok(views.pop().flatten())
    }

    /// Reads several documents together: each transaction is counted in all of them or in none, so
    /// that transfers between them never change the sum.
    ///
    /// Transactions committed before the call are counted; those not committed when it returns are
    /// not. It blocks no other process and writes nothing. If a copy that is cut off from the
    /// others answers, the result is as old as that copy.
    ///
    /// # Errors
    /// [`Failure::Moving`] if other processes wrote the documents before each snapshot.
    pub async fn views(&self, documents: &[&str]) -> Result<Vec<Option<DocumentView>>, Failure> {
        self.check().await?;
        let mut before: Option<Snapshot> = None;
        let mut known = KnownTransactions::default();
        for _ in 0..MAX_SNAPSHOTS {
            let snapshot = self.read_snapshot(documents).await?;
            known.begin_snapshot();
            let earlier = before.iter().flat_map(Snapshot::held_transactions);
            let held = snapshot.held_transactions().chain(earlier);
            let unknown: BTreeSet<TransactionId> =
                held.filter(|id| !known.is_decided(id)).cloned().collect();
            let ids: Vec<&str> = unknown.iter().map(TransactionId::as_str).collect();
            let records = self.store.read_records(&ids).await;
            let records = records.map_err(Failure::Unavailable)?;
            for (id, record) in unknown.into_iter().zip(records) {
                known.add(id, record);
            }
            let result = match &before {
                _ if documents.len() == 1 => snapshot.view_single(&known),
                Some(before) => snapshot.views_after(before, &known, documents),
                None => None,
            };
            if let Some(views) = result {
                return Ok(views);
            }
            before = Some(snapshot);
        }
        Err(Failure::Moving)
    }

    async fn read_snapshot(&self, documents: &[&str]) -> Result<Snapshot, Failure> {
        let index = &self.store.documents;
        let found = self.store.read_each(index, documents, Source::Whole);
        let mut seen = Vec::with_capacity(documents.len());
        for found in found.await? {
            seen.push(match found {
                Some(found) => Some(DocumentVersion {
                    number: found.version,
                    seen: found.seen,
                    document: found.read().map_err(Failure::Unavailable)?,
                }),
                None => None,
            });
        }
        Ok(Snapshot(seen))
    }
}

/// A document in one snapshot.
#[derive(Clone, Debug)]
struct DocumentVersion {
    number: i64,
    seen: Seen,
    document: Document,
}

/// Documents, each read at a different moment.
#[derive(Clone, Debug)]
struct Snapshot(Vec<Option<DocumentVersion>>);

/// Transactions that were read, with the snapshot before the read.
#[derive(Debug, Default)]
struct KnownTransactions {
    snapshots: usize,
    /// Committed transactions, with the snapshot after which that was read.
    decided: BTreeMap<TransactionId, (usize, Vec<Effect>)>,
    /// Other transactions, with the last snapshot after which that was read.
    open: BTreeMap<TransactionId, usize>,
}

impl KnownTransactions {
    fn begin_snapshot(&mut self) {
        self.snapshots += 1;
    }

    fn is_decided(&self, id: &TransactionId) -> bool {
        self.decided.contains_key(id)
    }

    fn add(&mut self, id: TransactionId, record: Option<Record>) {
        match record {
            Some(record)
                if matches!(record.transaction_state, State::Committed | State::Finished) =>
            {
                self.decided.insert(id, (self.snapshots, record.effects));
            }
            _ => {
                self.open.insert(id, self.snapshots);
            }
        }
    }
}

impl DocumentVersion {
    fn holds(&self, id: &TransactionId) -> bool {
        self.document.holds.iter().any(|hold| hold.id == *id)
    }

    fn view(&self, known: &KnownTransactions) -> DocumentView {
        let document = &self.document;
        let mut view = DocumentView {
            available: document.available(),
            total: document.balance,
            data: document.data.clone(),
        };
        for hold in document
            .holds
            .iter()
            .filter(|hold| known.is_decided(&hold.id))
        {
            view.total += hold.add;
            view.data.extend(hold.set.clone());
        }
        view
    }

    /// Whether the holds by which the two versions differ are the only writes between them.
    fn differs_only_by_holds(&self, before: &Self) -> bool {
        let came = self.document.holds.iter().map(|hold| &hold.id);
        let came = came.filter(|id| !before.holds(id)).count();
        let went = before.document.holds.iter().map(|hold| &hold.id);
        let went = went.filter(|id| !self.holds(id)).count();
        let writes = self.number.checked_sub(before.number);
        self.seen.primary_term == before.seen.primary_term
            && writes.and_then(|writes| usize::try_from(writes).ok()) == Some(came + went)
    }
}

impl Snapshot {
    fn held_transactions(&self) -> impl Iterator<Item = &TransactionId> {
        let documents = self.0.iter().flatten();
        documents.flat_map(|version| version.document.holds.iter().map(|hold| &hold.id))
    }

    /// Returns the views of a single document, which needs no second snapshot.
    fn view_single(&self, known: &KnownTransactions) -> Option<Vec<Option<DocumentView>>> {
        let views = self.0.iter();
        Some(
            views
                .map(|version| Some(version.as_ref()?.view(known)))
                .collect(),
        )
    }

    /// Returns the documents in this snapshot, if the one before suffices to derive them.
    fn views_after(
        &self,
        before: &Self,
        known: &KnownTransactions,
        documents: &[&str],
    ) -> Option<Vec<Option<DocumentView>>> {
        let mut views = Vec::with_capacity(self.0.len());
        for ((version, before), name) in self.0.iter().zip(&before.0).zip(documents) {
            let (version, before) = match (version, before) {
                (Some(version), Some(before)) => (version, before),
                (None, None) => {
                    views.push(None);
                    continue;
                }
                _ => return None,
            };
            if !version.differs_only_by_holds(before) {
                return None;
            }
            let mut view = version.view(known);
            let mut has_set = false;
            for (id, (since, effects)) in &known.decided {
                let effect = effects.iter().find(|effect| effect.document == **name);
                let Some(effect) = effect else { continue };
                // Settled in between; or committed, so held, before this snapshot, and settled
                // since.
                if version.holds(id) || before.holds(id) || *since < known.snapshots {
                    continue;
                }
                // It was open after the previous snapshot, so not settled then; and it was not held
                // in between: it is not in this document yet.
                let was_open = known.open.get(id) == Some(&(known.snapshots - 1));
                if !was_open {
                    return None;
                }
                // The order of two that set it is unknown.
                if has_set && !effect.set.is_empty() {
                    return None;
                }
                has_set |= !effect.set.is_empty();
                view.total += effect.add;
                view.data.extend(effect.set.clone());
            }
            views.push(Some(view));
        }
        Some(views)
    }
}

#[cfg(test)]
mod tests {
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
            known.begin_snapshot();
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
                        let totals: Vec<_> =
                            views.into_iter().map(|one| one.unwrap().total).collect();
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
            known.begin_snapshot();
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
}
