//! Transactions and the limits that they are checked against.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The limit of amounts and balances: larger numbers differ between JSON, Java and Rust.
pub const MAX_AMOUNT: i64 = 1 << 53;
/// The most documents of one transaction. Other transactions may wait for each of them.
pub const MAX_EFFECTS: usize = 64;
/// The most JSON bytes that one effect sets. They are stored in the transaction and, while it is
/// open, twice in the document.
pub const MAX_SET_BYTES: usize = 64 * 1024;

/// The name of a transaction, chosen by its creator: the same name is the same transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TransactionId(Arc<str>);

impl TransactionId {
    /// Checks a name of `[A-Za-z0-9_-]{1,64}`.
    pub fn new(id: &str) -> Result<Self, Refusal> {
        match is_valid_id(id) {
            true => Ok(Self(id.into())),
            false => Err(Refusal::TransactionId(id.to_owned())),
        }
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TransactionId {
    type Error = Refusal;

    fn try_from(id: String) -> Result<Self, Refusal> {
        Self::new(&id)
    }
}

impl From<TransactionId> for String {
    fn from(id: TransactionId) -> Self {
        id.0.as_ref().to_owned()
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The change of one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// The id of the document.
    pub document: String,
    /// The amount that its balance gains, or loses if negative. The amount to lose must be
    /// available, in addition to reservations of other transactions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub add: i64,
    /// Values for fields of its `data`. Only one open transaction at a time may set fields of a
    /// document.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
}

impl Effect {
    /// Adds `amount` to the balance, or subtracts it if negative.
    pub fn add(document: &str, amount: i64) -> Self {
        Self {
            document: document.to_owned(),
            add: amount,
            set: Map::new(),
        }
    }

    /// Sets fields of `data` to these values.
    pub fn set(document: &str, values: Map<String, Value>) -> Self {
        Self {
            document: document.to_owned(),
            add: 0,
            set: values,
        }
    }

    /// Checks the limits of one effect.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let document = || self.document.clone();
        if !is_valid_id(&self.document) {
            return Err(Refusal::DocumentId(document()));
        }
        if self.add == 0 && self.set.is_empty() {
            return Err(Refusal::Nothing(document()));
        }
        if !(-MAX_AMOUNT..=MAX_AMOUNT).contains(&self.add) {
            return Err(Refusal::Amount(self.add));
        }
        let bytes = serde_json::to_string(&self.set).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_SET_BYTES {
            return Err(Refusal::TooMuchToSet(document()));
        }
        Ok(())
    }
}

/// Several effects that are applied together or not at all. A value of this type is valid.
///
/// ```
/// use posthaste_elastic::two_phase::Transaction;
/// let rent = Transaction::transfer("rent-2026-12", "alice", "bob", 900)?;
/// assert_eq!(rent.effects()[0].add, -900);
/// assert!(Transaction::transfer("oops", "alice", "alice", 900).is_err());
/// # Ok::<(), posthaste_elastic::two_phase::Refusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    id: TransactionId,
    effects: Vec<Effect>,
}

impl Transaction {
    /// Whether these are its effects, in any order: it has one effect for each document.
    pub(super) fn has_effects(&self, others: &[Effect]) -> bool {
        let is_there = |effect| others.contains(effect);
        self.effects.len() == others.len() && self.effects.iter().all(is_there)
    }

    /// Creates a transaction, and checks everything that can be checked without the documents.
    pub fn new(id: &str, effects: Vec<Effect>) -> Result<Self, Refusal> {
        let id = TransactionId::new(id)?;
        if effects.is_empty() || effects.len() > MAX_EFFECTS {
            return Err(Refusal::Effects(effects.len()));
        }
        let mut documents = BTreeSet::new();
        for effect in &effects {
            effect.check()?;
            if !documents.insert(&effect.document) {
                return Err(Refusal::Twice(effect.document.clone()));
            }
        }
        Ok(Self { id, effects })
    }

    /// Transfers `amount` units from one account to another.
    pub fn transfer(id: &str, from: &str, to: &str, amount: i64) -> Result<Self, Refusal> {
        if !(1..=MAX_AMOUNT).contains(&amount) {
            return Err(Refusal::Amount(amount));
        }
        Self::new(
            id,
            vec![Effect::add(from, -amount), Effect::add(to, amount)],
        )
    }

    /// Returns its name.
    pub fn id(&self) -> &TransactionId {
        &self.id
    }

    /// Returns its effects, each on a different document.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }
}

/// The rule that a request breaks. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The transaction's name is invalid.
    #[error("the transaction's id {0:?} is not of [A-Za-z0-9_-]{{1,64}}")]
    TransactionId(String),
    /// A document's name is invalid.
    #[error("the document's id {0:?} is not of [A-Za-z0-9_-]{{1,64}}")]
    DocumentId(String),
    /// The transaction has no effect, or too many.
    #[error("a transaction has from 1 to {MAX_EFFECTS} effects, not {0}")]
    Effects(usize),
    /// An effect changes nothing.
    #[error("the effect on {0:?} adds zero and sets nothing: an effect must change something")]
    Nothing(String),
    /// An amount is too large for JSON, or a transfer is of zero or less.
    #[error(
        "the amount {0} is not allowed: a transfer moves from 1 to 2^53, an effect adds from -2^53 \
         to 2^53"
    )]
    Amount(i64),
    /// Two effects change one document: holds are found by the transaction's id, so a document can
    /// have only one of each transaction.
    #[error("the document {0:?} appears twice: a transaction has one effect for each document")]
    Twice(String),
    /// The age is too low: transactions are deleted only when no process can work on them any more.
    #[error("transactions can be pruned one hour after their end at the earliest")]
    Young,
    /// The values are too large: they would slow down every use of the document.
    #[error("the values for {0:?} take more than {MAX_SET_BYTES} bytes as JSON")]
    TooMuchToSet(String),
}

fn is_valid_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&id.len()) && id.bytes().all(plain)
}

fn is_zero(amount: &i64) -> bool {
    *amount == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(effects: Vec<Effect>) -> String {
        Transaction::new("t", effects).unwrap_err().to_string()
    }

    #[test]
    fn effects_compare_equal_in_any_order() {
        let price = |times: f64| Map::from_iter([("price".to_owned(), (864.58 * times).into())]);
        let (a, b) = (Effect::add("a", 1), Effect::set("b", price(1.1)));
        let made = Transaction::new("t", vec![a.clone(), b.clone()]).unwrap();
        let read: Vec<Effect> =
            serde_json::from_str(&serde_json::to_string(&[&b, &a]).unwrap()).unwrap();
        assert!(made.has_effects(&read));
        for others in [
            vec![a.clone()],
            vec![a.clone(), a.clone()],
            vec![a, Effect::set("b", price(1.2))],
        ] {
            assert!(!made.has_effects(&others), "{others:?}");
        }
        for n in 1..10_000 {
            let number = f64::from(n) * 0.1 * 1.1;
            let printed = serde_json::to_string(&number).unwrap();
            assert_eq!(
                serde_json::from_str::<f64>(&printed).unwrap().to_bits(),
                number.to_bits()
            );
        }
    }

    #[test]
    fn invalid_transactions_are_refused_with_the_rule() {
        let of = |from: &str, to: &str, amount| {
            let refused = Transaction::transfer("t", from, to, amount);
            refused.unwrap_err().to_string()
        };
        assert!(of("a", "a", 1).contains("one effect for each document"));
        for amount in [0, -1, i64::MIN, i64::MAX, MAX_AMOUNT + 1] {
            assert!(of("a", "b", amount).contains("from 1 to 2^53"), "{amount}");
        }
        for id in ["", "a b", "ä", "a/b", "_bulk?x", &"x".repeat(65)] {
            assert!(of(id, "b", 1).contains("[A-Za-z0-9_-]{1,64}"), "{id}");
            let refused = Transaction::transfer(id, "a", "b", 1).unwrap_err();
            assert_eq!(refused, Refusal::TransactionId(id.to_owned()));
        }
        assert!(refused(vec![]).contains("from 1 to 64 effects"));
        let many = (0..65).map(|i| Effect::add(&format!("d{i}"), 1)).collect();
        assert!(refused(many).contains("from 1 to 64 effects"));
        assert!(refused(vec![Effect::add("a", 0)]).contains("must change something"));
        assert!(refused(vec![Effect::add("a", i64::MIN)]).contains("-2^53"));
        let long = Map::from_iter([("x".to_owned(), "y".repeat(MAX_SET_BYTES).into())]);
        assert!(refused(vec![Effect::set("a", long)]).contains("65536 bytes"));
    }

    #[test]
    fn rejects_fractional_amounts_and_unknown_fields() {
        for (text, rule) in [
            (r#"{"document":"a","add":1.5}"#, "expected i64"),
            (r#"{"document":"a","add":NaN}"#, "expected value"),
            (r#"{"document":"a","add":"1"}"#, "expected i64"),
            (r#"{"document":"a","add":1e300}"#, "expected i64"),
            (
                r#"{"document":"a","add":9223372036854775808}"#,
                "expected i64",
            ),
            (
                r#"{"document":"a","add":1,"amount":1}"#,
                "unknown field `amount`, expected one of `document`, `add`, `set`",
            ),
        ] {
            let result = serde_json::from_str::<Effect>(text).unwrap_err();
            assert!(result.to_string().contains(rule), "{text}: {result}");
        }
    }
}
