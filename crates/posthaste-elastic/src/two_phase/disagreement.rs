//! Findings of an audit: contradictions between documents and transactions. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::document::{Document, FENCE_SLOTS};
use super::state::State;
use super::stored::Record;
use super::transaction::{MAX_AMOUNT, TransactionId};

/// A document or a transaction that contradicts the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// The document, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// The transaction, if the finding is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// The kind of contradiction.
    pub fault: Fault,
}

/// The kind of contradiction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It cannot be read: a field is missing, unknown, or has another type.
    Unreadable(String),
    /// The balance of a document differs from its opening balance plus the settled transactions.
    Balance {
        /// The balance of the document.
        has: i64,
        /// The expected balance.
        should_have: i128,
    },
    /// The available amount of a document is negative.
    Overdrawn(i64),
    /// A document holds a transaction that does not exist.
    Unknown,
    /// A document holds a transaction in a final state.
    Ended(State),
    /// A hold differs from the transaction's effect on the document.
    Other,
    /// A document holds a transaction more than once.
    Twice,
    /// Two holds would set the same document.
    BothSet,
    /// A mark is not one that a settle or an undo writes.
    Mark(u64),
    /// A transaction breaks a rule that is checked before transactions are written.
    Rule(String),
    /// A committed or finished transaction touches a document that does not exist.
    Missing,
    /// An open transaction lacks a time, so that recovery does not find it.
    Unfindable,
}

impl Disagreement {
    pub(super) fn for_document(document: &str, transaction: Option<&str>, fault: Fault) -> Self {
        Self {
            document: Some(document.to_owned()),
            transaction: transaction.map(str::to_owned),
            fault,
        }
    }

    pub(super) fn for_transaction(transaction: &str, fault: Fault) -> Self {
        Self {
            document: None,
            transaction: Some(transaction.to_owned()),
            fault,
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.document, &self.transaction) {
            (Some(document), Some(transaction)) => {
                write!(f, "document {document}, transaction {transaction}: ")?;
            }
            (Some(document), None) => write!(f, "document {document}: ")?,
            (None, Some(transaction)) => write!(f, "transaction {transaction}: ")?,
            (None, None) => {}
        }
        match &self.fault {
            Fault::Unreadable(why) => write!(f, "it cannot be read: {why}"),
            Fault::Balance { has, should_have } => write!(
                f,
                "its balance is {has}, but the opening balance and settled amounts add up to \
                 {should_have}"
            ),
            Fault::Overdrawn(available) => write!(f, "{available} is available"),
            Fault::Unknown => write!(f, "it is held, but the transaction does not exist"),
            Fault::Ended(state) => write!(f, "it is held, but the transaction is {state}"),
            Fault::Other => write!(f, "the hold differs from the effect of the transaction"),
            Fault::Twice => write!(f, "it is held more than once"),
            Fault::BothSet => write!(f, "two holds would set it"),
            Fault::Mark(slot) => write!(f, "the mark in slot {slot} belongs to no remaining hold"),
            Fault::Rule(rule) => write!(f, "{rule}"),
            Fault::Missing => write!(
                f,
                "the transaction is decided, but the document does not \
                                         exist"
            ),
            Fault::Unfindable => {
                write!(f, "it is open, but recovery cannot find it: it has no time")
            }
        }
    }
}

/// The transactions that documents hold: `None` if one does not exist; unreadable ones are left
/// out.
pub(super) type Holders = BTreeMap<TransactionId, Option<Record>>;

/// Checks a document that was not written during the reads. `settled` is the sum of the
/// transactions that it does not hold any more.
pub(super) fn check_document(
    name: &str,
    document: &Document,
    holders: &Holders,
    settled: i128,
) -> Vec<Disagreement> {
    let mut found = Vec::new();
    let mut say = |transaction: Option<&TransactionId>, fault| {
        let transaction = transaction.map(TransactionId::as_str);
        found.push(Disagreement::for_document(name, transaction, fault));
    };
    if let Some(opened) = document.opened {
        let should_have = i128::from(opened) + settled;
        if i128::from(document.balance) != should_have {
            let has = document.balance;
            say(None, Fault::Balance { has, should_have });
        }
    }
    if document.available() < 0 {
        say(None, Fault::Overdrawn(document.available()));
    }
    for (slot, mark) in &document.fences {
        if *slot >= FENCE_SLOTS || !(1..=MAX_AMOUNT as u64).contains(&mark.0) {
            say(None, Fault::Mark(*slot));
        }
    }
    let setting = document.holds.iter().filter(|hold| !hold.set.is_empty());
    if setting.count() > 1 {
        say(None, Fault::BothSet);
    }
    let mut seen = BTreeSet::new();
    for hold in &document.holds {
        if !seen.insert(&hold.id) {
            say(Some(&hold.id), Fault::Twice);
        }
        // The check of transactions reports unreadable ones.
        let Some(holder) = holders.get(&hold.id) else {
            continue;
        };
        let Some(record) = holder else {
            say(Some(&hold.id), Fault::Unknown);
            continue;
        };
        if record.transaction_state.is_final() {
            say(Some(&hold.id), Fault::Ended(record.transaction_state));
        }
        let mut effects = record.effects.iter();
        let effect = effects.find(|effect| effect.document == name);
        if effect.is_none_or(|effect| effect.add != hold.add || effect.set != hold.set) {
            say(Some(&hold.id), Fault::Other);
        }
    }
    found
}

/// Checks a transaction, apart from its documents.
pub(super) fn check_transaction(id: &str, record: &Record) -> Vec<Disagreement> {
    let mut found = Vec::new();
    if let Err(rule) = record.transaction(id) {
        found.push(Fault::Rule(rule.to_string()));
    }
    let has_times = record.next_attempt_at.is_some() && record.modification_time.is_some();
    if !record.transaction_state.is_final() && !has_times {
        found.push(Fault::Unfindable);
    }
    let found = found.into_iter();
    found
        .map(|fault| Disagreement::for_transaction(id, fault))
        .collect()
}
