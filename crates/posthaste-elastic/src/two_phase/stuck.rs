//! Transactions that an operator should inspect: open ones without progress for long, with their
//! blockers.

use std::fmt;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;
use serde_json::json;

use super::coordinator::Coordinator;
use super::document::{Document, Obstacle};
use super::failure::Failure;
use super::state::State;
use super::stored::{Record, record_or_error};
use super::transaction::{Refusal, Transaction};
use crate::Hit;

const MAX_CONCURRENT: usize = 8;

/// A transaction that an operator should inspect.
#[derive(Clone, Debug, Serialize)]
pub struct Stuck {
    /// The id of the transaction.
    pub id: String,
    /// The stored transaction, or the reason why it cannot be read (`unreadable`).
    #[serde(flatten, serialize_with = "record_or_error")]
    pub record: Result<Record, String>,
    /// What blocks it now. If empty, it waits for recovery, or for its next attempt.
    pub blockers: Vec<Blocker>,
}

/// A cause that blocks a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocker {
    /// It breaks a rule, so that no process runs it.
    Rule(String),
    /// This document does not exist.
    Missing(String),
    /// This document would reject its hold.
    Refused(String, Obstacle),
    /// This document cannot be read.
    Unreadable(String),
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "{rule}"),
            Self::Missing(document) => write!(f, "the document {document} does not exist"),
            Self::Refused(document, obstacle) => write!(f, "the document {document} {obstacle}"),
            Self::Unreadable(document) => write!(f, "the document {document} cannot be read"),
        }
    }
}

impl Stuck {
    fn from_hit(hit: Hit) -> (Self, Option<Transaction>) {
        let source = hit.source.as_deref().map_or("null", |source| source.get());
        let record = serde_json::from_str::<Record>(source).map_err(|error| error.to_string());
        let transaction = match &record {
            Ok(record) => record.transaction(&hit.id).map_err(Some),
            Err(_) => Err(None),
        };
        let rule = |refusal: &Refusal| Blocker::Rule(refusal.to_string());
        let blockers = match &transaction {
            Err(refusal) => refusal.iter().map(rule).collect(),
            Ok(_) => Vec::new(),
        };
        let stuck = Self {
            id: hit.id,
            record,
            blockers,
        };
        (stuck, transaction.ok())
    }
}

/// Returns what blocks a transaction on this document, if anything does.
fn find_blocker(
    transaction: &Transaction,
    state: State,
    at: usize,
    document: Result<Option<Document>, crate::Error>,
) -> Option<Blocker> {
    let effect = transaction.effects().get(at)?;
    let name = effect.document.clone();
    match document {
        Err(_) => Some(Blocker::Unreadable(name)),
        Ok(None) => Some(Blocker::Missing(name)),
        Ok(Some(mut document)) if matches!(state, State::Created | State::Pending) => {
            let mark = document.fence(transaction.id());
            let held = document.hold(transaction.id(), effect, mark);
            held.err().map(|obstacle| Blocker::Refused(name, obstacle))
        }
        Ok(Some(_)) => None,
    }
}

impl Coordinator {
    /// Returns the open transactions whose state has not changed for this long, the oldest first,
    /// each with what blocks it: an operator should inspect them.
    ///
    /// # Errors
    /// The transactions or their documents could not be read.
    pub async fn list_stuck(&self, unmoved: Duration) -> Result<Vec<Stuck>, Failure> {
        self.list_first_stuck(unmoved, usize::MAX).await
    }

    /// Like [`list_stuck`](Self::list_stuck), but returns at most this many.
    ///
    /// # Errors
    /// The transactions or their documents could not be read.
    pub async fn list_first_stuck(
        &self,
        unmoved: Duration,
        limit: usize,
    ) -> Result<Vec<Stuck>, Failure> {
        self.store.refresh_transactions().await?;
        let mut stuck = Vec::new();
        let open = self.scan_open_since("modification_time", unmoved, json!(true));
        let mut open = open.limit_page(limit.max(1));
        while stuck.len() < limit
            && let Some(page) = self.store.next_page(&mut open).await?
        {
            let checks = page.hits.into_iter().take(limit - stuck.len());
            let checks = checks.map(|hit| self.with_blocker(hit));
            let found: Result<Vec<Stuck>, Failure> = stream::iter(checks)
                .buffered(MAX_CONCURRENT)
                .try_collect()
                .await;
            match found {
                Ok(found) => stuck.extend(found),
                Err(failure) => {
                    self.store.end_scan(&mut open).await;
                    return Err(failure);
                }
            }
        }
        self.store.end_scan(&mut open).await;
        Ok(stuck)
    }

    async fn with_blocker(&self, hit: Hit) -> Result<Stuck, Failure> {
        let (mut stuck, transaction) = Stuck::from_hit(hit);
        if let (Some(transaction), Ok(record)) = (transaction, &stuck.record) {
            let effects = transaction.effects().iter();
            let names: Vec<&str> = effects.map(|effect| effect.document.as_str()).collect();
            let found = self.store.read_documents(&names).await;
            let found = found.map_err(Failure::Unavailable)?;
            let state = record.transaction_state;
            let found = found.into_iter().enumerate();
            stuck.blockers = found
                .filter_map(|(at, document)| find_blocker(&transaction, state, at, document))
                .collect();
        }
        Ok(stuck)
    }
}
