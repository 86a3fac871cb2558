//! Plans of the model: transactions, executors, faults.

use posthaste_elastic::two_phase::{Effect, Fence, Transaction, TransactionId};
use serde_json::Map;

use super::machine::Goal;
use super::scripts::Omission;

/// The possible faults, and the most of them in one history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub budget: u8,
    /// A write is executed, and its answer is lost.
    pub lost: bool,
    /// A write is executed at any time after its sender abandoned it, or never.
    pub late: bool,
    /// An isolated primary executes a write, which persists or is lost later.
    pub isolated: bool,
    /// After some write, a copy that no write reaches any more answers reads.
    pub stale: bool,
}

impl Faults {
    /// Executors stop forever or for some time, which does not count as a fault.
    pub const STALLS: Self = Self {
        budget: 0,
        lost: false,
        late: false,
        isolated: false,
        stale: false,
    };

    pub fn all(budget: u8) -> Self {
        Self {
            budget,
            lost: true,
            late: true,
            isolated: true,
            stale: true,
        }
    }

    pub fn late() -> Self {
        Self {
            budget: 1,
            late: true,
            ..Self::STALLS
        }
    }

    pub fn isolated() -> Self {
        Self {
            budget: 1,
            isolated: true,
            ..Self::STALLS
        }
    }

    pub fn stale() -> Self {
        Self {
            budget: 1,
            stale: true,
            ..Self::STALLS
        }
    }
}

/// The executors: the transaction, the goal, and the number of attempts of each.
pub type Executors<'a> = &'a [(usize, Goal, u8)];

/// A model to check.
#[derive(Clone, Debug)]
pub struct Plan {
    pub transactions: Vec<Transaction>,
    pub balances: Vec<i64>,
    pub executors: Vec<(usize, Goal, u8)>,
    pub faults: Faults,
    pub omission: Option<Omission>,
    /// Whether ended transactions may be deleted.
    pub prunes: bool,
}

impl Plan {
    fn new(
        transactions: &[Transaction],
        balances: &[i64],
        executors: Executors,
        faults: Faults,
    ) -> Self {
        Self {
            transactions: transactions.to_vec(),
            balances: balances.to_vec(),
            executors: executors.to_vec(),
            faults,
            omission: None,
            prunes: false,
        }
    }

    /// One transfer between two documents.
    pub fn transfer(executors: Executors, faults: Faults) -> Self {
        Self::new(&[transfer("t", "d0", "d1")], &[5, 5], executors, faults)
    }

    /// One transaction on three documents.
    pub fn three_documents(executors: Executors, faults: Faults) -> Self {
        let effects = [("d0", -2), ("d1", 1), ("d2", 1)];
        let effects = effects.map(|(document, add)| Effect::add(document, add));
        let transaction = Transaction::new("t", effects.to_vec()).unwrap();
        Self::new(&[transaction], &[2, 0, 0], executors, faults)
    }

    /// Two transfers from the same document, which has enough for one.
    pub fn funds_for_one(executors: Executors, faults: Faults) -> Self {
        let transfers = [transfer("t", "d0", "d1"), transfer("u", "d0", "d1")];
        Self::new(&transfers, &[1, 0], executors, faults)
    }

    /// Two transfers whose marks go into the same slot.
    pub fn one_slot(executors: Executors, faults: Faults) -> Self {
        let slot = |id: &str| Fence::slot(&TransactionId::new(id).unwrap());
        let mut names = (0..).map(|number| format!("u{number}"));
        let neighbour = names.find(|name| slot(name) == slot("t")).unwrap();
        let transfers = [transfer("t", "d0", "d1"), transfer(&neighbour, "d0", "d1")];
        Self::new(&transfers, &[5, 5], executors, faults)
    }

    /// Two transfers: the second passes on what the first adds.
    pub fn chain(executors: Executors, faults: Faults) -> Self {
        let transfers = [transfer("t", "d0", "d1"), transfer("u", "d1", "d2")];
        Self::new(&transfers, &[1, 0, 0], executors, faults)
    }

    /// Two transfers in opposite directions.
    pub fn opposite(executors: Executors, faults: Faults) -> Self {
        let transfers = [transfer("t", "d0", "d1"), transfer("u", "d1", "d0")];
        Self::new(&transfers, &[1, 1], executors, faults)
    }

    /// Two transactions that both set the same two documents.
    pub fn both_set(executors: Executors, faults: Faults) -> Self {
        Self::new(&[set("t"), set("u")], &[0, 0], executors, faults)
    }

    /// Adds the deletion of ended transactions at any time.
    pub fn pruned(self) -> Self {
        Self {
            prunes: true,
            ..self
        }
    }

    pub fn without(self, rule: Omission) -> Self {
        Self {
            omission: Some(rule),
            ..self
        }
    }
}

fn transfer(id: &str, from: &str, to: &str) -> Transaction {
    Transaction::transfer(id, from, to, 1).unwrap()
}

fn set(id: &str) -> Transaction {
    let owner = |document| {
        let owner = Map::from_iter([("owner".to_owned(), id.into())]);
        Effect::set(document, owner)
    };
    Transaction::new(id, vec![owner("d0"), owner("d1")]).unwrap()
}
