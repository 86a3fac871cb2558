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
            known.advance_snapshot();
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
    fn advance_snapshot(&mut self) {
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
mod tests;
