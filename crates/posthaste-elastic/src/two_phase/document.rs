//! A document that transactions touch, and the effect of each stored script on it.
//!
//! The server runs `scripts/*.painless`; the model and the fake run these functions. The same calls
//! must have the same results on both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::transaction::{Effect, MAX_AMOUNT, TransactionId};

/// The number of slots over which the transactions of a document are spread, by their ids. Two
/// transactions that share a slot may cost each other an attempt, nothing else.
pub const FENCE_SLOTS: u64 = 64;
/// The limit of open transactions of a document; further ones have to wait.
pub const MAX_HOLDS: usize = 256;

/// The mark that the last settle or undo left in a slot; zero if there was none. It detects holds
/// that arrive too late.
///
/// A mark is random, not a counter: after a write that was seen and then lost, a counter would
/// reach the same number again, and accept a late hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fence(pub u64);

impl Fence {
    /// Returns the slot for the marks of a transaction.
    pub fn slot(id: &TransactionId) -> u64 {
        // FNV-1a: it must be the same in every program that ever writes these documents.
        let hash = id
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        hash % FENCE_SLOTS
    }
}

/// The reservation of a document for an open transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The id of the transaction.
    pub id: TransactionId,
    /// The amount that the balance will gain.
    pub add: i64,
    /// The values that will be set. While one hold sets values, no other hold may.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
}

/// The sum of transactions that ended long ago, so that they may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The amount that the document gained by them. For those that it still holds, the amount that
    /// it would gain.
    pub add: i64,
    /// The time before which those transactions were finished, in milliseconds since 1970.
    pub before: i64,
}

/// A document as it is stored. It may have other fields; this crate does not read them, and no
/// script removes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The settled balance.
    #[serde(default)]
    pub balance: i64,
    /// The balance with which it was opened; an audit computes the expected balance from it. No
    /// script changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<i64>,
    /// The sum of transactions that were deleted by [pruning](super::Coordinator::prune).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
    /// The holds of open transactions.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// The marks, by slot.
    #[serde(default)]
    pub fences: BTreeMap<u64, Fence>,
    /// The values that effects have set.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// The reason why a document rejects a hold. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// Its slot has another mark than was read: this hold may be late, or another transaction of
    /// the same slot was faster.
    #[error("has a different mark than was read")]
    Fenced,
    /// Less is available than the transaction takes.
    #[error("has less available than the transaction takes")]
    Insufficient,
    /// The balance could grow beyond 2^53.
    #[error("could grow beyond 2^53")]
    TooLarge,
    /// Another open transaction sets this document.
    #[error("is being set by another open transaction")]
    Busy,
    /// It has the most open transactions that it may hold.
    #[error("has reached its limit of open transactions")]
    Full,
}

impl Document {
    /// Returns the amount that can be spent: the balance minus the amounts that open transactions
    /// may still take. Amounts that they will add count once they are settled.
    pub fn available(&self) -> i64 {
        self.balance + self.holds.iter().map(|hold| hold.add.min(0)).sum::<i64>()
    }

    /// Returns the mark in the slot of a transaction.
    pub fn fence(&self, id: &TransactionId) -> Fence {
        let mark = self.fences.get(&Fence::slot(id));
        mark.copied().unwrap_or_default()
    }

    /// Does the same as `hold.painless`. An existing hold is written again: only an acknowledged
    /// write proves that it will persist.
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

    /// Does the same as `release.painless` with `settle`: applies the hold. It always writes, for
    /// the mark and for the acknowledgement.
    pub fn settle(&mut self, id: &TransactionId, mark: Fence) {
        if let Some(hold) = self.release(id, mark) {
            self.balance += hold.add;
            self.data.extend(hold.set);
        }
    }

    /// Does the same as `release.painless` without `settle`: releases the hold. It always writes,
    /// for the mark and for the acknowledgement.
    pub fn undo(&mut self, id: &TransactionId, mark: Fence) {
        self.release(id, mark);
    }

    /// Does the same as `prune.painless`: adds a sum to the past, if the past ends where the sum
    /// begins. Returns whether it wrote.
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

    /// Returns the time before which transactions are counted in its [past](Self::past).
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
    fn an_interval_of_the_past_is_counted_once() {
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
