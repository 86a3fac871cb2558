//! A document that transactions touch, and what each stored script does to it.
//!
//! The server runs `scripts/*.painless`; the model and the fake run these functions. The same calls
//! against both must end the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::transaction::{Effect, MAX_AMOUNT, TransactionId};

/// Into this many slots the transactions of a document are spread, by their ids. Two that share a
/// slot may cost each other an attempt, no more.
pub const FENCES: u64 = 64;
/// This many open transactions a document holds; the next one has to wait.
pub const MAX_HOLDS: usize = 256;

/// What tells a hold that came too late: the mark that the last settle or undo left in its slot.
/// Zero where none was left.
///
/// A mark is drawn, never counted: after a write that was seen and then lost, a count would come
/// round to the same number, and let the late hold in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence(pub u64);

impl Fence {
    /// The slot in which a transaction's marks are left.
    pub fn slot(id: &TransactionId) -> u64 {
        // FNV-1a: the same in every program that ever touches these documents.
        let hash = id
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        hash % FENCES
    }
}

/// What a document has reserved for an open transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Whose it is.
    pub id: TransactionId,
    /// What the balance will gain.
    pub add: i64,
    /// What will be set. While one hold sets, no other may.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
}

/// What transactions that ended long ago have given a document, so that they may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// What it gained by them; of those that it should still hold, what it would gain.
    pub add: i64,
    /// Which those are: they were finished before, in milliseconds since 1970.
    pub before: i64,
}

/// A document as it is stored. It may have more fields; nothing here reads them, and no script
/// drops them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// What is settled.
    #[serde(default)]
    pub balance: i64,
    /// The balance that it was opened with, by which an audit knows what it must have. No script
    /// touches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<i64>,
    /// What transactions have given it that are forgotten: they were
    /// [pruned](super::Coordinator::prune).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
    /// What is open.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// The marks, by slot.
    #[serde(default)]
    pub fences: BTreeMap<u64, Fence>,
    /// What *set* sets.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// Why a document does not take a hold. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// Its slot has another mark than was seen: this hold may be late, or somebody of the same slot
    /// was faster.
    #[error("has another mark than was seen")]
    Fenced,
    /// Less is available than it would take.
    #[error("has less available than it would lose")]
    Insufficient,
    /// The balance could grow beyond 2^53.
    #[error("could grow beyond 2^53")]
    TooLarge,
    /// Another open transaction sets this document.
    #[error("is being set by another open transaction")]
    Busy,
    /// It holds as many open transactions as it may.
    #[error("holds as many open transactions as it may")]
    Full,
}

impl Document {
    /// What can be spent: the balance without what open transactions may still take. What they will
    /// give counts when they are settled.
    pub fn available(&self) -> i64 {
        self.balance + self.holds.iter().map(|hold| hold.add.min(0)).sum::<i64>()
    }

    /// The mark in the slot of a transaction.
    pub fn fence(&self, id: &TransactionId) -> Fence {
        let mark = self.fences.get(&Fence::slot(id));
        mark.copied().unwrap_or_default()
    }

    /// `hold.painless`. A hold that is there is written again: only a write that is acknowledged
    /// says that it will stay.
    pub fn hold(
        &mut self,
        id: &TransactionId,
        effect: &Effect,
        seen: Fence,
    ) -> Result<(), Obstacle> {
        if self.holds.iter().any(|hold| hold.id == *id) {
            return Ok(());
        }
        if self.fence(id) != seen {
            return Err(Obstacle::Fenced);
        }
        if effect.add < 0 && self.available() + effect.add < 0 {
            return Err(Obstacle::Insufficient);
        }
        let gains = self.holds.iter().map(|hold| hold.add.max(0));
        if effect.add > 0 && self.balance + gains.sum::<i64>() > MAX_AMOUNT - effect.add {
            return Err(Obstacle::TooLarge);
        }
        if !effect.set.is_empty() && self.holds.iter().any(|hold| !hold.set.is_empty()) {
            return Err(Obstacle::Busy);
        }
        if self.holds.len() >= MAX_HOLDS {
            return Err(Obstacle::Full);
        }
        self.holds.push(Hold {
            id: id.clone(),
            add: effect.add,
            set: effect.set.clone(),
        });
        Ok(())
    }

    /// `settle.painless`: what was held happens. It always writes, for the mark and for the
    /// acknowledgement.
    pub fn settle(&mut self, id: &TransactionId, mark: Fence) {
        if let Some(hold) = self.release(id, mark) {
            self.balance += hold.add;
            self.data.extend(hold.set);
        }
    }

    /// `undo.painless`: what was held is let go. It always writes, for the mark and for the
    /// acknowledgement.
    pub fn undo(&mut self, id: &TransactionId, mark: Fence) {
        self.release(id, mark);
    }

    /// `prune.painless`: counts what was given from where it was counted up to. Whether it wrote.
    pub fn count_past(&mut self, from: i64, add: i64, before: i64) -> bool {
        let counted = self.counted_before();
        if counted < before {
            if counted != from {
                return false;
            }
            let add = self.past.map_or(0, |past| past.add) + add;
            self.past = Some(Past { add, before });
        }
        true
    }

    /// Up to when its [past](Self::past) is counted.
    pub(super) fn counted_before(&self) -> i64 {
        self.past.map_or(0, |past| past.before)
    }

    fn release(&mut self, id: &TransactionId, mark: Fence) -> Option<Hold> {
        self.fences.insert(Fence::slot(id), mark);
        let at = self.holds.iter().position(|hold| hold.id == *id)?;
        Some(self.holds.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: &str) -> TransactionId {
        TransactionId::new(id).unwrap()
    }

    fn with_balance(balance: i64) -> Document {
        Document {
            balance,
            ..Document::default()
        }
    }

    const NEVER: Fence = Fence(0);

    #[test]
    fn held_amounts_cannot_be_spent_and_credits_count_when_settled() {
        let mut account = with_balance(10);
        account
            .hold(&id("a"), &Effect::add("x", -7), NEVER)
            .unwrap();
        account.hold(&id("b"), &Effect::add("x", 5), NEVER).unwrap();
        assert_eq!((account.balance, account.available()), (10, 3));
        let late = account.hold(&id("c"), &Effect::add("x", -4), NEVER);
        assert_eq!(late, Err(Obstacle::Insufficient));
        account.settle(&id("b"), Fence(1));
        account
            .hold(&id("c"), &Effect::add("x", -4), NEVER)
            .unwrap();
        account.undo(&id("a"), Fence(2));
        account.settle(&id("c"), Fence(3));
        assert_eq!((account.balance, account.available()), (11, 11));
        assert_eq!(account.holds, []);
    }

    #[test]
    fn late_holds_are_refused() {
        for release in [Document::settle, Document::undo] {
            let mut account = with_balance(10);
            let seen = account.fence(&id("a"));
            release(&mut account, &id("a"), Fence(1));
            let late = account.hold(&id("a"), &Effect::add("x", -7), seen);
            assert_eq!(late, Err(Obstacle::Fenced));
            assert_eq!(account.available(), 10);
        }
    }

    #[test]
    fn history_is_counted_once() {
        let mut account = with_balance(10);
        assert!(account.count_past(0, 3, 100));
        assert!(account.count_past(0, 3, 100), "it is written again");
        assert!(!account.count_past(0, 7, 200), "its sum begins elsewhere");
        assert!(account.count_past(100, 4, 200));
        assert!(account.count_past(0, 3, 100), "late");
        let counted = Past {
            add: 7,
            before: 200,
        };
        assert_eq!((account.past, account.balance), (Some(counted), 10));
    }

    #[test]
    fn only_one_open_transaction_may_set_a_document() {
        let values = |value: &str| Map::from_iter([("owner".to_owned(), value.into())]);
        let mut document = with_balance(1);
        let first = Effect::set("x", values("ann"));
        document.hold(&id("a"), &first, NEVER).unwrap();
        let second = document.hold(&id("b"), &Effect::set("x", values("bob")), NEVER);
        assert_eq!(second, Err(Obstacle::Busy));
        document
            .hold(&id("c"), &Effect::add("x", -1), NEVER)
            .unwrap();
        assert_eq!(
            document.data,
            Map::new(),
            "nobody sees it before it is settled"
        );
        document.settle(&id("a"), Fence(1));
        assert_eq!(document.data, values("ann"));
    }

    #[test]
    fn balances_and_holds_are_bounded() {
        let mut account = with_balance(MAX_AMOUNT - 1);
        account.hold(&id("a"), &Effect::add("x", 1), NEVER).unwrap();
        let more = account.hold(&id("b"), &Effect::add("x", 1), NEVER);
        assert_eq!(more, Err(Obstacle::TooLarge));
        let mut hot = with_balance(1000);
        for at in 0..MAX_HOLDS {
            let debit = Effect::add("x", -1);
            hot.hold(&id(&format!("t{at}")), &debit, NEVER).unwrap();
        }
        let next = hot.hold(&id("next"), &Effect::add("x", -1), NEVER);
        assert_eq!(next, Err(Obstacle::Full));
    }
}
