//! What an audit finds: where documents and transactions say different things. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::document::{Document, FENCES};
use super::state::State;
use super::stored::Record;
use super::transaction::{MAX_AMOUNT, TransactionId};

/// A document or a transaction that says something else than the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// The document, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// The transaction, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<String>,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It cannot be read: a field is missing, unknown, or of another kind.
    Unreadable(String),
    /// A document has another balance than it was opened with and transactions have given it.
    Balance {
        /// What it has.
        has: i64,
        /// What it should have.
        should_have: i128,
    },
    /// Less than nothing is available.
    Overdrawn(i64),
    /// A document holds a transaction that is not there.
    Unknown,
    /// A document holds a transaction that is at its end.
    Ended(State),
    /// What a document holds for a transaction is not what the transaction does to it.
    Other,
    /// A document holds a transaction more than once.
    Twice,
    /// Two holds would set the same document.
    BothSet,
    /// A mark is none that a settle or an undo leaves.
    Mark(u64),
    /// A transaction breaks a rule that each is checked by before it is written.
    Rule(String),
    /// A decided transaction touches a document that is not there.
    Missing,
    /// An open transaction has no time by which recovery would find it.
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
                "it has {has}; what it was opened with and what was settled come to {should_have}"
            ),
            Fault::Overdrawn(available) => write!(f, "{available} is available"),
            Fault::Unknown => write!(f, "it is held, and there is no such transaction"),
            Fault::Ended(state) => write!(f, "it is held, and the transaction is {state}"),
            Fault::Other => write!(f, "what is held is not what the transaction does"),
            Fault::Twice => write!(f, "it is held more than once"),
            Fault::BothSet => write!(f, "two holds would set it"),
            Fault::Mark(slot) => write!(f, "the mark in slot {slot} is none that is left here"),
            Fault::Rule(rule) => write!(f, "{rule}"),
            Fault::Missing => write!(f, "the transaction is decided, and there is no document"),
            Fault::Unfindable => {
                write!(f, "it is open, and recovery cannot find it: it has no time")
            }
        }
    }
}

/// The transactions that documents hold, as far as they are there and can be read.
pub(super) type Holders = BTreeMap<TransactionId, Option<Record>>;

/// What is wrong with a document that was not written while this was read. `settled` is what
/// transactions that it does not hold any more have given it.
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
        if *slot >= FENCES || !(1..=MAX_AMOUNT as u64).contains(&mark.0) {
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
        // One that cannot be read is reported where transactions are gone through.
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

/// What is wrong with a transaction, apart from its documents.
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
