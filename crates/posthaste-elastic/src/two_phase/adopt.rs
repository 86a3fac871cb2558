//! Adoption: converts indexes of the published protocol in place, with transactions in any state.
//!
//! The writers of that protocol must have stopped, and their requests must have ended: a late
//! request changes a balance or a state against the rules of this crate. No coordinator works on
//! the indexes before the adoption is complete, because their mapping is not strict until then; an
//! interrupted adoption is run again, and skips what it has converted.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::coordinator::Coordinator;
use super::document::Document;
use super::failure::Failure;
use super::published::{self, ParsedTransaction};
use super::read::Scan;
use super::transaction::Effect;
use crate::{Condition, Document as StoredDocument, ErrorKind, Operation, Source};

/// The most errors that are named at once.
const MAX_NAMED_ERRORS: usize = 20;

/// The result of an adoption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Adopted {
    /// The number of documents that were converted.
    pub documents: u64,
    /// The number of transactions that were converted.
    pub transactions: u64,
    /// Transactions that an operator should inspect, because the published protocol left
    /// contradictory states of them. Each adoption reports them again, also those that an earlier
    /// one converted.
    pub doubts: Vec<String>,
}

impl Coordinator {
    /// Converts the documents that the published protocol has written into these two indexes:
    /// accounts with `balance` and `pending_transactions`, transactions with `src_acct`,
    /// `dest_acct`, `amount` and `transaction_state`. Open transactions stay open, and
    /// [recovery](Self::recover) ends them.
    ///
    /// Call it when the writers of that protocol have been stopped for longer than their requests
    /// may take. It may be called again, and continues where it stopped.
    ///
    /// # Errors
    /// [`Failure::Misconfigured`] if a document cannot be adopted: up to 20 errors are named, and
    /// no document was written. Also if a document was written concurrently: a writer has not
    /// stopped.
    pub async fn adopt(&self) -> Result<Adopted, Failure> {
        self.store.require_durability().await?;
        let mut adopted = Adopted::default();
        self.reject_unadoptable().await?;
        self.store.put_fields().await?;
        self.adopt_transactions(&mut adopted).await?;
        self.adopt_documents(&mut adopted).await?;
        self.store.put_scripts().await?;
        self.store.require_strict_mapping().await?;
        self.check().await?;
        Ok(adopted)
    }

    async fn reject_unadoptable(&self) -> Result<(), Failure> {
        let mut wrong = Vec::new();
        let (documents, transactions) = (&self.store.documents, &self.store.transactions);
        for index in [documents, transactions] {
            let refreshed = self.store.client.refresh(index).await;
            refreshed.map_err(Failure::Unavailable)?;
        }
        let everything = json!({"match_all": {}});
        let mut walk = Scan::new(transactions, &everything, json!(true));
        while let Some(page) = self.store.next_page(&mut walk).await? {
            for hit in page.hits {
                let source = hit.source.as_deref().map_or("null", |source| source.get());
                if let Err(why) = published::parse_transaction(&hit.id, source) {
                    wrong.push(format!("transaction {}: {why}", hit.id));
                }
            }
        }
        let mut walk = Scan::new(documents, &everything, json!(false));
        while let Some(page) = self.store.next_page(&mut walk).await? {
            let ids: Vec<String> = page.hits.into_iter().map(|hit| hit.id).collect();
            let accounts = self.read_existing(documents, &ids).await?;
            let known = self.read_listed(&accounts).await?;
            for found in &accounts {
                if let Err(why) = adopted_account(found, &known) {
                    wrong.push(format!("document {}: {why}", found.id));
                }
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let more = wrong.len().saturating_sub(MAX_NAMED_ERRORS);
        wrong.truncate(MAX_NAMED_ERRORS);
        if more > 0 {
            wrong.push(format!("and {more} more"));
        }
        let text = format!("the indexes cannot be adopted: {}", wrong.join("; "));
        Err(Failure::Misconfigured(text))
    }

    async fn adopt_transactions(&self, adopted: &mut Adopted) -> Result<(), Failure> {
        let index = &self.store.transactions;
        let mut walk = Scan::new(index, &json!({"match_all": {}}), json!(false));
        while let Some(page) = self.store.next_page(&mut walk).await? {
            let ids: Vec<String> = page.hits.into_iter().map(|hit| hit.id).collect();
            let mut published = Vec::new();
            for found in self.read_existing(index, &ids).await? {
                let known = published::parse_transaction(&found.id, source_text(&found));
                let known = known.map_err(|why| misconfigured(&found.id, &why))?;
                if known.is_published {
                    published.push((found, known));
                } else {
                    // The adoption that converted it may have ended before it reported.
                    adopted
                        .doubts
                        .extend(published::adoption_warning(&found.id, &known.record));
                }
            }
            let effects = published
                .iter()
                .flat_map(|(_, one)| one.transaction.effects());
            let listing = self.ids_still_listed(effects).await?;
            let mut operations = Vec::new();
            for (found, known) in &published {
                let is_listed = listing.contains(&found.id);
                let record = published::adopted_record(known, is_listed);
                adopted
                    .doubts
                    .extend(published::adoption_warning(&found.id, &record));
                operations.push(replace_operation(index, found, &record)?);
            }
            adopted.transactions += self.write_all(&operations).await?;
        }
        Ok(())
    }

    /// Returns the transactions that the accounts of these effects still list.
    async fn ids_still_listed<'a>(
        &self,
        effects: impl Iterator<Item = &'a Effect>,
    ) -> Result<BTreeSet<String>, Failure> {
        let names: BTreeSet<String> = effects.map(|effect| effect.document.clone()).collect();
        let names: Vec<String> = names.into_iter().collect();
        let mut listing = BTreeSet::new();
        for found in self.read_existing(&self.store.documents, &names).await? {
            let listed = parse_fields(&found).and_then(|account| published::listed_ids(&account));
            listing.extend(listed.map_err(|why| misconfigured(&found.id, &why))?);
        }
        Ok(listing)
    }

    async fn adopt_documents(&self, adopted: &mut Adopted) -> Result<(), Failure> {
        let index = &self.store.documents;
        let mut walk = Scan::new(index, &json!({"match_all": {}}), json!(false));
        while let Some(page) = self.store.next_page(&mut walk).await? {
            let ids: Vec<String> = page.hits.into_iter().map(|hit| hit.id).collect();
            let accounts = self.read_existing(index, &ids).await?;
            let known = self.read_listed(&accounts).await?;
            let mut changed = Vec::new();
            for found in &accounts {
                let account =
                    adopted_account(found, &known).map_err(|why| misconfigured(&found.id, &why))?;
                // A document in the new format has its opening balance; an account gets one now.
                if let Some(account) = account {
                    changed.push((found, account));
                }
            }
            let documents: BTreeMap<&str, Result<Document, String>> = changed
                .iter()
                .map(|(found, account)| {
                    let document = serde_json::from_value(Value::Object(account.clone()));
                    (
                        found.id.as_str(),
                        document.map_err(|error| error.to_string()),
                    )
                })
                .collect();
            let settled = self.sum_settled(&documents).await?;
            let mut operations = Vec::new();
            for (found, mut account) in changed {
                let balance = account.get("balance").and_then(Value::as_i64);
                let settled = settled.get(&found.id).copied().unwrap_or_default();
                let opened = i128::from(balance.unwrap_or_default()) - settled;
                if let Ok(opened) = i64::try_from(opened) {
                    account.insert("opened".to_owned(), opened.into());
                }
                operations.push(replace_operation(index, found, &account)?);
            }
            adopted.documents += self.write_all(&operations).await?;
        }
        Ok(())
    }

    /// Reads the transactions that these accounts list.
    async fn read_listed(
        &self,
        accounts: &[StoredDocument],
    ) -> Result<BTreeMap<String, ParsedTransaction>, Failure> {
        let mut ids = BTreeSet::new();
        for found in accounts {
            // The check of each account reports its errors.
            ids.extend(
                parse_fields(found)
                    .and_then(|account| published::listed_ids(&account))
                    .unwrap_or_default(),
            );
        }
        let ids: Vec<String> = ids.into_iter().filter(|id| !id.is_empty()).collect();
        let mut known = BTreeMap::new();
        for found in self.read_existing(&self.store.transactions, &ids).await? {
            if let Ok(one) = published::parse_transaction(&found.id, source_text(&found)) {
                known.insert(found.id, one);
            }
        }
        Ok(known)
    }

    /// Reads these documents, without those that do not exist.
    pub(super) async fn read_existing(
        &self,
        index: &str,
        ids: &[String],
    ) -> Result<Vec<StoredDocument>, Failure> {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let found = self.store.read_each(index, &ids, Source::Whole).await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn write_all(&self, operations: &[Operation]) -> Result<u64, Failure> {
        let outcomes = self.store.client.bulk(operations).await;
        for (outcome, operation) in outcomes
            .map_err(Failure::Unavailable)?
            .iter()
            .zip(operations)
        {
            let Err(refusal) = outcome else { continue };
            return Err(match refusal.kind {
                ErrorKind::Conflict => misconfigured(
                    operation.id(),
                    "it was written meanwhile: a writer of the other protocol, or another \
                     adoption, has not stopped",
                ),
                _ => Failure::Unavailable(refusal.clone().into_error("bulk")),
            });
        }
        Ok(operations.len() as u64)
    }
}

fn adopted_account(
    found: &StoredDocument,
    known: &BTreeMap<String, ParsedTransaction>,
) -> Result<Option<Map<String, Value>>, String> {
    Effect::add(&found.id, 1)
        .check()
        .map_err(|rule| rule.to_string())?;
    let account = published::adopted_fields(&found.id, parse_fields(found)?, |id| known.get(id))?;
    let source = match &account {
        Some(account) => Value::Object(account.clone()),
        None => serde_json::from_str(source_text(found)).map_err(|error| error.to_string())?,
    };
    let document = serde_json::from_value::<Document>(source);
    document.map(|_| account).map_err(|error| error.to_string())
}

/// Replaces a document, if it was not written since it was read.
fn replace_operation(
    index: &str,
    found: &StoredDocument,
    document: &impl Serialize,
) -> Result<Operation, Failure> {
    let operation = Operation::index(index, &found.id, document);
    let operation = operation.map_err(Failure::Unavailable)?;
    Ok(operation.when(Condition::Unchanged(found.seen)))
}

fn source_text(found: &StoredDocument) -> &str {
    found
        .source
        .as_deref()
        .map_or("null", |source| source.get())
}

fn parse_fields(found: &StoredDocument) -> Result<Map<String, Value>, String> {
    serde_json::from_str(source_text(found)).map_err(|error| error.to_string())
}

fn misconfigured(id: &str, why: &str) -> Failure {
    Failure::Misconfigured(format!("{id}: {why}"))
}
