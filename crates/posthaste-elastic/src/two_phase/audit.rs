//! The audit: compares all documents with all transactions, in pages, while both change.
//!
//! A document is compared with transactions that were read while it was not written: it is read
//! before and after them, and checked again if it was written in between. Transactions settled on
//! it before the first read were committed before that, so a later search finds them; transactions
//! that it holds are not settled.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::coordinator::Coordinator;
use super::disagreement::{self, Disagreement, Fault, Holders};
use super::document::Document;
use super::failure::Failure;
use super::read::{PAGE_SIZE, Scan};
use super::state::State;
use super::stored::Record;
use super::transaction::TransactionId;
use crate::{Document as StoredDocument, Page, Source};

/// The most checks of a document that other processes are writing.
const MAX_CHECKS: usize = 8;
/// The most findings that are listed; further ones are counted.
const MAX_LISTED: usize = 1_000;

/// The result of an audit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditReport {
    /// The number of documents that were checked.
    pub documents: u64,
    /// The sum of the balances of documents with an opening balance: equal to `opened` plus
    /// `settled`, unless a document disagrees.
    pub balances: i128,
    /// The sum of the opening balances.
    pub opened: i128,
    /// The sum that settled transactions added to these documents or took from them.
    pub settled: i128,
    /// The sum that open transactions reserve of all documents.
    pub reserved: i128,
    /// The number of documents without an opening balance: their balance cannot be checked.
    pub unopened: u64,
    /// The number of documents that were not checked: they were written during each of eight
    /// attempts.
    pub moving: u64,
    /// Their ids, up to a thousand.
    pub not_judged: Vec<String>,
    /// The number of transactions in each state.
    pub transactions: BTreeMap<String, u64>,
    /// The contradictions, up to a thousand.
    pub disagreements: Vec<Disagreement>,
    /// The number of further contradictions.
    pub more: u64,
}

impl AuditReport {
    /// Whether the checked documents and transactions agree. Those that [`moving`](Self::moving)
    /// counts were not checked.
    pub fn agrees(&self) -> bool {
        self.disagreements.is_empty()
    }

    fn add_disagreements(&mut self, found: Vec<Disagreement>) {
        for one in found {
            match self.disagreements.len() < MAX_LISTED {
                true => self.disagreements.push(one),
                false => self.more += 1,
            }
        }
    }

    /// Skips documents that are written too often to be checked.
    fn skip_documents(&mut self, ids: Vec<String>) {
        self.moving += ids.len() as u64;
        let room = MAX_LISTED.saturating_sub(self.not_judged.len());
        self.not_judged.extend(ids.into_iter().take(room));
    }

    fn count_document(&mut self, document: &Document, settled: i128) {
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

/// A document, or the reason why it cannot be read.
type ReadResult = Result<Document, String>;

impl Coordinator {
    /// Compares every document with every transaction and returns the contradictions, while other
    /// processes continue.
    ///
    /// It writes nothing, and uses memory for one page at a time. A document's balance can be
    /// checked only if the document was [opened](Self::open) or adopted, and while its finished
    /// transactions exist or were [pruned](Self::prune), not deleted by hand.
    ///
    /// # Errors
    /// An index could not be read.
    pub async fn audit(&self) -> Result<AuditReport, Failure> {
        self.check().await?;
        let mut audit = AuditReport::default();
        let everything = json!({"match_all": {}});
        let indexes = [&self.store.documents, &self.store.transactions];
        for index in indexes {
            let refreshed = self.store.client.refresh(index).await;
            refreshed.map_err(Failure::Unavailable)?;
        }
        let mut documents = Scan::new(indexes[0], &everything, json!(false));
        let judged = self.judge_all_documents(&mut documents, &mut audit).await;
        self.store.end_scan(&mut documents).await;
        judged?;
        let mut transactions = Scan::new(indexes[1], &everything, json!(true));
        let judged = self.judge_all_transactions(&mut transactions, &mut audit);
        let judged = judged.await;
        self.store.end_scan(&mut transactions).await;
        judged.map(|()| audit)
    }

    async fn judge_all_documents(
        &self,
        walk: &mut Scan<'_>,
        audit: &mut AuditReport,
    ) -> Result<(), Failure> {
        while let Some(page) = self.store.next_page(walk).await? {
            let ids = page.hits.into_iter().map(|hit| hit.id).collect();
            self.judge_documents(ids, audit).await?;
        }
        Ok(())
    }

    async fn judge_all_transactions(
        &self,
        walk: &mut Scan<'_>,
        audit: &mut AuditReport,
    ) -> Result<(), Failure> {
        while let Some(page) = self.store.next_page(walk).await? {
            self.judge_transactions(page, audit).await?;
        }
        Ok(())
    }

    async fn judge_documents(
        &self,
        mut ids: Vec<String>,
        audit: &mut AuditReport,
    ) -> Result<(), Failure> {
        for _ in 0..MAX_CHECKS {
            let before = self.read_existing(&self.store.documents, &ids).await?;
            let documents: BTreeMap<&str, ReadResult> = before
                .iter()
                .map(|found| (found.id.as_str(), parse_document(found)))
                .collect();
            let holders = self.read_holders(&documents).await?;
            let settled = self.sum_settled(&documents).await?;
            let after = self.read_existing(&self.store.documents, &ids).await?;
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
                        audit.count_document(document, settled);
                        let wrong =
                            disagreement::check_document(&found.id, document, &holders, settled);
                        audit.add_disagreements(wrong);
                    }
                    Err(why) => {
                        let fault = Fault::Unreadable(why.clone());
                        audit.add_disagreements(vec![Disagreement::for_document(
                            &found.id, None, fault,
                        )]);
                    }
                }
            }
            if written.is_empty() {
                return Ok(());
            }
            ids = written;
        }
        audit.skip_documents(ids);
        Ok(())
    }

    /// Reads the transactions that these documents hold.
    async fn read_holders(
        &self,
        documents: &BTreeMap<&str, ReadResult>,
    ) -> Result<Holders, Failure> {
        let readable = documents.values().flatten();
        let ids: BTreeSet<&TransactionId> = readable
            .flat_map(|document| document.holds.iter().map(|hold| &hold.id))
            .collect();
        let ids: Vec<&TransactionId> = ids.into_iter().collect();
        let mut holders = Holders::new();
        for ids in ids.chunks(PAGE_SIZE) {
            let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
            let index = &self.store.transactions;
            let found = self.store.read_each(index, &names, Source::Whole).await?;
            for (id, found) in ids.iter().zip(found) {
                match found.map(|found| found.read::<Record>()) {
                    Some(Ok(record)) => holders.insert((*id).clone(), Some(record)),
                    None => holders.insert((*id).clone(), None),
                    // The check of transactions reports unreadable ones.
                    Some(Err(_)) => None,
                };
            }
        }
        Ok(holders)
    }

    /// Returns the sum that committed and finished transactions added to each document, without
    /// those that it still holds.
    pub(super) async fn sum_settled(
        &self,
        documents: &BTreeMap<&str, ReadResult>,
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
        let mut walk = Scan::new(index, &query, json!(true)).sort_by("modification_time", "asc");
        while let Some(page) = self.store.next_page(&mut walk).await? {
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
                        // The past includes the transaction, which the document still holds.
                        (true, true) => -add,
                        (false, true) | (true, false) => 0,
                    };
                }
            }
        }
        Ok(settled)
    }

    async fn judge_transactions(&self, page: Page, audit: &mut AuditReport) -> Result<(), Failure> {
        let mut decided = BTreeMap::<String, Vec<String>>::new();
        for hit in page.hits {
            let source = hit.source.as_deref().map_or("null", |source| source.get());
            let record = match serde_json::from_str::<Record>(source) {
                Ok(record) => record,
                Err(error) => {
                    let fault = Fault::Unreadable(error.to_string());
                    audit.add_disagreements(vec![Disagreement::for_transaction(&hit.id, fault)]);
                    continue;
                }
            };
            let state = record.transaction_state;
            *audit.transactions.entry(state.to_string()).or_default() += 1;
            audit.add_disagreements(disagreement::check_transaction(&hit.id, &record));
            // A rolled-back transaction may have been rolled back because a document is missing.
            // One that breaks a rule is reported already, and the names of its documents may be
            // invalid.
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
                audit.add_disagreements(missing.collect());
            }
        }
        Ok(())
    }
}

fn parse_document(found: &StoredDocument) -> ReadResult {
    found.read::<Document>().map_err(|error| error.to_string())
}
