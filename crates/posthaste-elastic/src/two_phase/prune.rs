//! Deletes transactions that ended long ago. The amounts that they added to each document are first
//! counted in the document, so that an audit can still compute its expected balance.
//!
//! A document contains the time up to which its past is counted, and accepts a sum only if it
//! begins there. The sum covers all transactions that finished in that time. It depends on no other
//! state of the document, which may have been read long ago: an audit corrects it by the holds of
//! the document. A transaction is deleted once all its documents have acknowledged their sums,
//! unless it was written in between.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::coordinator::Coordinator;
use super::document::Document;
use super::failure::Failure;
use super::read::Scan;
use super::state::State;
use super::stored::{Record, count_past_call};
use super::transaction::Refusal;
use crate::{Condition, Document as StoredDocument, Effect as Done, Operation, Script};

/// The lowest age: no process works on a transaction this long after its end, and clocks differ by
/// less.
const MIN_AGE: Duration = Duration::from_secs(3_600);
/// The most retries on the server of a count whose document other clients write.
const MAX_COUNT_RETRIES: u32 = 16;

/// The result of a pruning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// The number of transactions that were deleted.
    pub forgotten: u64,
    /// The number of equally old transactions that were not deleted: they or their documents were
    /// written concurrently, a document still holds them or does not exist, or they cannot be read.
    pub kept: u64,
}

/// Documents by name; `None` if one does not exist. Unreadable ones are left out.
type DocumentsByName = BTreeMap<String, Option<Document>>;

impl Coordinator {
    /// Deletes finished and rolled-back transactions that ended at least this long ago, an hour or
    /// more. The amounts that they added to their documents stay counted, and [audits](Self::audit)
    /// have the same result.
    ///
    /// The names of deleted transactions are forgotten. A repeated call with the same name creates
    /// another transaction and executes it again; so does a creation that arrives this late, or an
    /// executor that paused for this long. Choose a time longer than any of these may take, days
    /// rather than hours, and use no name twice.
    ///
    /// # Errors
    /// An index could not be read. Earlier deletions persist.
    pub async fn prune(&self, older_than: Duration) -> Result<Pruned, Failure> {
        if older_than < MIN_AGE {
            return Err(Refusal::Young.into());
        }
        self.check().await?;
        self.store.refresh_transactions().await?;
        let mut pruned = Pruned::default();
        let Some(last) = self.last_end_time(older_than).await? else {
            return Ok(pruned);
        };
        let before = last + 1;
        let mut counted = BTreeSet::new();
        let query = ended_query(
            &[State::Finished, State::RolledBack],
            &json!({"lt": before}),
        );
        let mut walk = Scan::new(&self.store.transactions, &query, json!(false));
        while let Some(page) = self.store.next_page(&mut walk).await? {
            let ids: Vec<String> = page.hits.into_iter().map(|hit| hit.id).collect();
            match self.prune_page(&ids, before, &mut counted).await {
                Ok(forgotten) => {
                    pruned.forgotten += forgotten;
                    pruned.kept += ids.len() as u64 - forgotten;
                }
                Err(failure) => {
                    self.store.end_scan(&mut walk).await;
                    return Err(failure);
                }
            }
        }
        Ok(pruned)
    }

    /// Returns when the last of them ended, by the server's clock.
    async fn last_end_time(&self, older_than: Duration) -> Result<Option<i64>, Failure> {
        let until = json!({"lte": format!("now-{}s", older_than.as_secs())});
        let query = ended_query(&[State::Finished, State::RolledBack], &until);
        let walk = Scan::new(&self.store.transactions, &query, json!(false));
        let mut walk = walk.sort_by("modification_time", "desc").limit_page(1);
        let page = self.store.next_page(&mut walk).await?;
        self.store.end_scan(&mut walk).await;
        let last = page.and_then(|page| page.hits.into_iter().next());
        Ok(last.and_then(|hit| hit.sort.first().and_then(Value::as_i64)))
    }

    /// Returns how many of these transactions were deleted.
    async fn prune_page(
        &self,
        ids: &[String],
        before: i64,
        counted: &mut BTreeSet<String>,
    ) -> Result<u64, Failure> {
        let found = self.read_existing(&self.store.transactions, ids).await?;
        // A transaction that breaks a rule may name documents that cannot even be requested.
        let read = |one: &StoredDocument| {
            let record = one.read::<Record>().ok()?;
            record.transaction(&one.id).ok()?;
            Some((one.clone(), record))
        };
        let all: Vec<(StoredDocument, Record)> = found.iter().filter_map(read).collect();
        let is_final =
            |(_, record): &&(StoredDocument, Record)| record.transaction_state.is_final();
        let ended: Vec<&(StoredDocument, Record)> = all.iter().filter(is_final).collect();
        let documents = self.read_touched_documents(&ended).await?;
        self.count_past_in_documents(&ended, &documents, before, counted)
            .await?;
        let gone = ended.iter().filter(|(found, record)| {
            let happened = record.transaction_state == State::Finished;
            record.effects.iter().all(|effect| {
                let name = &effect.document;
                match documents.get(name) {
                    Some(Some(document)) => {
                        let holds = document
                            .holds
                            .iter()
                            .any(|hold| *hold.id.as_str() == *found.id);
                        !holds && (!happened || counted.contains(name))
                    }
                    Some(None) => !happened,
                    None => false,
                }
            })
        });
        let deletes: Vec<Operation> = gone
            .map(|(found, _)| {
                let delete = Operation::delete(&self.store.transactions, &found.id);
                delete.when(Condition::Unchanged(found.seen))
            })
            .collect();
        let outcomes = self.store.client.bulk(&deletes).await;
        let outcomes = outcomes.map_err(Failure::Unavailable)?;
        Ok(outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64)
    }

    async fn read_touched_documents(
        &self,
        ended: &[&(StoredDocument, Record)],
    ) -> Result<DocumentsByName, Failure> {
        let effects = ended.iter().flat_map(|(_, record)| &record.effects);
        let names: BTreeSet<&str> = effects.map(|effect| effect.document.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let found = self.store.read_documents(&names).await;
        let found = found.map_err(Failure::Unavailable)?;
        let named = names.into_iter().map(str::to_owned).zip(found);
        Ok(named
            .filter_map(|(name, found)| Some((name, found.ok()?)))
            .collect())
    }

    /// Counts the past of the documents of finished transactions, and adds to `counted` those that
    /// acknowledged it.
    async fn count_past_in_documents(
        &self,
        ended: &[&(StoredDocument, Record)],
        documents: &DocumentsByName,
        before: i64,
        counted: &mut BTreeSet<String>,
    ) -> Result<(), Failure> {
        let finished = ended
            .iter()
            .filter(|(_, record)| record.transaction_state == State::Finished);
        let effects = finished.flat_map(|(_, record)| &record.effects);
        let names: BTreeSet<&String> = effects.map(|effect| &effect.document).collect();
        let mut by_begin = BTreeMap::<i64, BTreeSet<&str>>::new();
        for name in names {
            if let (Some(Some(document)), false) = (documents.get(name), counted.contains(name)) {
                let begin = by_begin.entry(document.counted_before()).or_default();
                begin.insert(name);
            }
        }
        let mut counts = Vec::new();
        let mut names = Vec::new();
        for (from, some) in by_begin {
            let given = self.sum_effects(&some, from, before).await?;
            for name in some {
                let add = given.get(name).copied().unwrap_or_default();
                let call = count_past_call(from, add, before);
                let script = Script {
                    id: call.script,
                    params: call.params,
                };
                let count = Operation::update(&self.store.documents, name, &script);
                counts.push(
                    count
                        .map_err(Failure::Unavailable)?
                        .retried(MAX_COUNT_RETRIES),
                );
                names.push(name);
            }
        }
        let outcomes = self.store.client.bulk(&counts).await;
        for (name, outcome) in names
            .into_iter()
            .zip(outcomes.map_err(Failure::Unavailable)?)
        {
            if outcome.is_ok_and(|done| done.effect == Done::Updated) {
                counted.insert(name.to_owned());
            }
        }
        Ok(())
    }

    /// Returns the sums that transactions finished in this time add to these documents, regardless
    /// of their holds: a stale copy may show a hold that was settled long ago.
    async fn sum_effects(
        &self,
        documents: &BTreeSet<&str>,
        from: i64,
        before: i64,
    ) -> Result<BTreeMap<String, i64>, Failure> {
        let mut given = BTreeMap::<String, i64>::new();
        if from >= before {
            return Ok(given);
        }
        let time = ended_query(&[State::Finished], &json!({"gte": from, "lt": before}));
        let touching = json!({"terms": {"effects.document": documents}});
        let query = json!({"bool": {"filter": [time, touching]}});
        let mut walk = Scan::new(&self.store.transactions, &query, json!(true));
        while let Some(page) = self.store.next_page(&mut walk).await? {
            for hit in page.hits {
                let source = hit.source.as_deref().map_or("null", |source| source.get());
                let Ok(record) = serde_json::from_str::<Record>(source) else {
                    continue;
                };
                for effect in record.effects {
                    if documents.contains(effect.document.as_str()) {
                        *given.entry(effect.document).or_default() += effect.add;
                    }
                }
            }
        }
        Ok(given)
    }
}

/// Returns a query for transactions in these states that ended in this range of time.
fn ended_query(states: &[State], range: &Value) -> Value {
    json!({"bool": {"filter": [
        {"terms": {"transaction_state": states}},
        {"range": {"modification_time": range}},
    ]}})
}
