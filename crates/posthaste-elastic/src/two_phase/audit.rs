//! The audit: all documents against all transactions, while both change, in pages.
//!
//! A document is judged by transactions that were read while nobody wrote it: it is read before and
//! after, and checked again if it was written in between. What was settled on it before the first
//! read was committed before that, so a search after it finds it; what it holds is not settled.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::coordinator::Coordinator;
use super::disagreement::{self, Disagreement, Fault, Holders};
use super::document::Document;
use super::failure::Failure;
use super::read::{PAGE, Scan};
use super::state::State;
use super::stored::Record;
use super::transaction::TransactionId;
use crate::{Document as StoredDocument, Page, Source};

/// This often a document is checked that others write meanwhile.
const LOOKS: usize = 8;
/// This many findings are named; the others are counted.
const NAMED: usize = 1_000;

/// What an audit came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Audit {
    /// This many documents were judged.
    pub documents: u64,
    /// What these have: equal to `opened` and `settled` together, unless one of them disagrees.
    pub balances: i128,
    /// What they were opened with.
    pub opened: i128,
    /// What settled transactions have given them, and taken.
    pub settled: i128,
    /// What open transactions reserve of them.
    pub reserved: i128,
    /// This many of them do not say what they were opened with: nothing tells what their balance
    /// should be.
    pub unopened: u64,
    /// This many were not judged: others wrote them at each of eight reads.
    pub moving: u64,
    /// Which those are, up to a thousand.
    pub not_judged: Vec<String>,
    /// This many transactions are in each state.
    pub transactions: BTreeMap<String, u64>,
    /// What is wrong, up to a thousand.
    pub disagreements: Vec<Disagreement>,
    /// This many more disagreements there are.
    pub more: u64,
}

impl Audit {
    /// Nothing is wrong with what was judged. What [`moving`](Self::moving) counts was not.
    pub fn agrees(&self) -> bool {
        self.disagreements.is_empty()
    }

    fn add(&mut self, found: Vec<Disagreement>) {
        for one in found {
            match self.disagreements.len() < NAMED {
                true => self.disagreements.push(one),
                false => self.more += 1,
            }
        }
    }

    /// These are written too often to be judged.
    fn give_up(&mut self, ids: Vec<String>) {
        self.moving += ids.len() as u64;
        let room = NAMED.saturating_sub(self.not_judged.len());
        self.not_judged.extend(ids.into_iter().take(room));
    }

    fn count(&mut self, document: &Document, settled: i128) {
        self.documents += 1;
        let takes = document
            .holds
            .iter()
            .map(|hold| i128::from(hold.add.min(0)));
        self.reserved -= takes.sum::<i128>();
        match document.opened {
            Some(opened) => {
                self.balances += i128::from(document.balance);
                self.opened += i128::from(opened);
                self.settled += settled;
            }
            None => self.unopened += 1,
        }
    }
}

/// A document, or why it is none.
type Readable = Result<Document, String>;

impl Coordinator {
    /// Holds every document against every transaction and says which of them disagree, while others
    /// go on.
    ///
    /// It writes nothing, and takes memory for a page at a time. A document's balance can be judged
    /// only if it was [opened](Self::open) or adopted, and as long as its finished transactions are
    /// kept or were [pruned](Self::prune), not deleted by hand.
    ///
    /// # Errors
    /// Something could not be read.
    pub async fn audit(&self) -> Result<Audit, Failure> {
        self.check().await?;
        let mut audit = Audit::default();
        let everything = json!({"match_all": {}});
        let indexes = [&self.store.documents, &self.store.transactions];
        for index in indexes {
            let refreshed = self.store.client.refresh(index).await;
            refreshed.map_err(Failure::Unavailable)?;
        }
        let mut documents = Scan::over(indexes[0], &everything, json!(false));
        let judged = self.judge_all(&mut documents, &mut audit).await;
        self.store.leave(&mut documents).await;
        judged?;
        let mut transactions = Scan::over(indexes[1], &everything, json!(true));
        let judged = self.judge_all_transactions(&mut transactions, &mut audit);
        let judged = judged.await;
        self.store.leave(&mut transactions).await;
        judged.map(|()| audit)
    }

    async fn judge_all(&self, walk: &mut Scan<'_>, audit: &mut Audit) -> Result<(), Failure> {
        while let Some(page) = self.store.next(walk).await? {
            let ids = page.hits.into_iter().map(|hit| hit.id).collect();
            self.judge(ids, audit).await?;
        }
        Ok(())
    }

    async fn judge_all_transactions(
        &self,
        walk: &mut Scan<'_>,
        audit: &mut Audit,
    ) -> Result<(), Failure> {
        while let Some(page) = self.store.next(walk).await? {
            self.judge_transactions(page, audit).await?;
        }
        Ok(())
    }

    async fn judge(&self, mut ids: Vec<String>, audit: &mut Audit) -> Result<(), Failure> {
        for _ in 0..LOOKS {
            let before = self.raw(&self.store.documents, &ids).await?;
            let documents: BTreeMap<&str, Readable> = before
                .iter()
                .map(|found| (found.id.as_str(), readable(found)))
                .collect();
            let holders = self.holders(&documents).await?;
            let settled = self.settled(&documents).await?;
            let after = self.raw(&self.store.documents, &ids).await?;
            let after: BTreeMap<_, _> = after.iter().map(|now| (&now.id, now.seen)).collect();
            let mut written = Vec::new();
            for found in &before {
                if after.get(&found.id) != Some(&found.seen) {
                    written.push(found.id.clone());
                    continue;
                }
                match &documents[found.id.as_str()] {
                    Ok(document) => {
                        let settled = settled.get(&found.id).copied().unwrap_or_default();
                        audit.count(document, settled);
                        let wrong =
                            disagreement::check_document(&found.id, document, &holders, settled);
                        audit.add(wrong);
                    }
                    Err(why) => {
                        let fault = Fault::Unreadable(why.clone());
                        audit.add(vec![Disagreement::for_document(&found.id, None, fault)]);
                    }
                }
            }
            if written.is_empty() {
                return Ok(());
            }
            ids = written;
        }
        audit.give_up(ids);
        Ok(())
    }

    /// The transactions that these documents hold.
    async fn holders(&self, documents: &BTreeMap<&str, Readable>) -> Result<Holders, Failure> {
        let readable = documents.values().flatten();
        let ids: BTreeSet<&TransactionId> = readable
            .flat_map(|document| document.holds.iter().map(|hold| &hold.id))
            .collect();
        let ids: Vec<&TransactionId> = ids.into_iter().collect();
        let mut holders = Holders::new();
        for ids in ids.chunks(PAGE) {
            let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
            let index = &self.store.transactions;
            let found = self.store.read_each(index, &names, Source::Whole).await?;
            for (id, found) in ids.iter().zip(found) {
                match found.map(|found| found.read::<Record>()) {
                    Some(Ok(record)) => holders.insert((*id).clone(), Some(record)),
                    None => holders.insert((*id).clone(), None),
                    // That it cannot be understood is reported where transactions are gone through.
                    Some(Err(_)) => None,
                };
            }
        }
        Ok(holders)
    }

    /// What transactions have given these documents that they do not hold any more.
    pub(super) async fn settled(
        &self,
        documents: &BTreeMap<&str, Readable>,
    ) -> Result<BTreeMap<String, i128>, Failure> {
        let names: Vec<&str> = documents.keys().copied().collect();
        let index = &self.store.transactions;
        let refreshed = self.store.client.refresh(index).await;
        refreshed.map_err(Failure::Unavailable)?;
        let query = json!({"bool": {"filter": [
            {"terms": {"effects.document": names}},
            {"terms": {"transaction_state": [State::Committed, State::Finished]}},
        ]}});
        let mut settled = BTreeMap::<String, i128>::new();
        for (name, document) in documents {
            if let Ok(Document {
                past: Some(past), ..
            }) = document
            {
                settled.insert((*name).to_owned(), i128::from(past.add));
            }
        }
        let mut walk = Scan::over(index, &query, json!(true)).by("modification_time", "asc");
        while let Some(page) = self.store.next(&mut walk).await? {
            for hit in page.hits {
                let source = hit.source.as_deref().map_or("null", |source| source.get());
                let Ok(record) = serde_json::from_str::<Record>(source) else {
                    continue;
                };
                let ended = hit.sort.first().and_then(Value::as_i64);
                let is_finished = record.transaction_state == State::Finished;
                let ended = ended.filter(|_| is_finished).unwrap_or(i64::MAX);
                for effect in record.effects {
                    let Some(Ok(document)) = documents.get(effect.document.as_str()) else {
                        continue;
                    };
                    let is_held = document
                        .holds
                        .iter()
                        .any(|hold| *hold.id.as_str() == *hit.id);
                    let is_counted = ended < document.counted_before();
                    let add = i128::from(effect.add);
                    let settled = settled.entry(effect.document).or_default();
                    *settled += match (is_counted, is_held) {
                        (false, false) => add,
                        // Its past has it, and it does not.
                        (true, true) => -add,
                        (false, true) | (true, false) => 0,
                    };
                }
            }
        }
        Ok(settled)
    }

    async fn judge_transactions(&self, page: Page, audit: &mut Audit) -> Result<(), Failure> {
        let mut decided = BTreeMap::<String, Vec<String>>::new();
        for hit in page.hits {
            let source = hit.source.as_deref().map_or("null", |source| source.get());
            let record = match serde_json::from_str::<Record>(source) {
                Ok(record) => record,
                Err(error) => {
                    let fault = Fault::Unreadable(error.to_string());
                    audit.add(vec![Disagreement::for_transaction(&hit.id, fault)]);
                    continue;
                }
            };
            let state = record.transaction_state;
            *audit.transactions.entry(state.to_string()).or_default() += 1;
            audit.add(disagreement::check_transaction(&hit.id, &record));
            // One that was given up may have been given up for that; one that breaks a rule is
            // named already, and its documents may have no names.
            let is_decided = matches!(state, State::Committed | State::Finished);
            if is_decided && record.transaction(&hit.id).is_ok() {
                for effect in record.effects {
                    let touched = decided.entry(effect.document).or_default();
                    touched.push(hit.id.clone());
                }
            }
        }
        let names: Vec<&str> = decided.keys().map(String::as_str).collect();
        let index = &self.store.documents;
        let found = self.store.read_each(index, &names, Source::None).await?;
        for ((name, transactions), found) in decided.iter().zip(found) {
            if found.is_none() {
                let missing = transactions.iter().map(|transaction| {
                    Disagreement::for_document(name, Some(transaction), Fault::Missing)
                });
                audit.add(missing.collect());
            }
        }
        Ok(())
    }
}

fn readable(found: &StoredDocument) -> Readable {
    found.read::<Document>().map_err(|error| error.to_string())
}
