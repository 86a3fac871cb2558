//! What stands in the two indexes: the scripts, the mappings, and a transaction as a document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::document::{Fence, MAX_HOLDS};
use super::execution::Reason;
use super::request::Request;
use super::state::State;
use super::transaction::{Effect, MAX_AMOUNT, Refusal, Transaction, TransactionId};

/// The scripts under the names that they are stored by. A script that changes gets another name:
/// old and new programs run side by side.
pub(super) const SCRIPTS: [(&str, &str); 5] = [
    (ADVANCE, include_str!("../../scripts/advance.painless")),
    (TOUCH, include_str!("../../scripts/touch.painless")),
    (HOLD, include_str!("../../scripts/hold.painless")),
    (RELEASE, include_str!("../../scripts/release.painless")),
    (PRUNE, include_str!("../../scripts/prune.painless")),
];
const ADVANCE: &str = "posthaste-two-phase-advance-1";
const TOUCH: &str = "posthaste-two-phase-touch-2";
const HOLD: &str = "posthaste-two-phase-hold-1";
const RELEASE: &str = "posthaste-two-phase-release-1";
const PRUNE: &str = "posthaste-two-phase-prune-1";

/// The pipeline that gives a new transaction its times.
pub(super) const TIMES: (&str, &str) = (
    "posthaste-two-phase-times-1",
    include_str!("../../mappings/times.json"),
);

pub(super) const DOCUMENTS: &str = include_str!("../../mappings/documents.json");
pub(super) const TRANSACTIONS: &str = include_str!("../../mappings/transactions.json");

/// A transaction as it is stored. Times are the server's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Where it is.
    pub transaction_state: State,
    /// What it does.
    pub effects: Vec<Effect>,
    /// How many attempts of recovery did not end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// When it was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
    /// When its state last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modification_time: Option<String>,
    /// When recovery may set about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
}

impl Record {
    pub(super) fn new(transaction: &Transaction, state: State) -> Self {
        Self {
            transaction_state: state,
            effects: transaction.effects().to_vec(),
            attempts: None,
            reason: None,
            creation_time: None,
            modification_time: None,
            next_attempt_at: None,
        }
    }

    /// The transaction that it is.
    ///
    /// # Errors
    /// Somebody else wrote it: it breaks a rule.
    pub fn transaction(&self, id: &str) -> Result<Transaction, Refusal> {
        Transaction::new(id, self.effects.clone())
    }
}

/// A record as it stands, beside the name of its transaction; or why it cannot be read.
pub(super) fn record_or_error<S: Serializer>(
    record: &Result<Record, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match record {
        Ok(record) => record.serialize(serializer),
        Err(why) => BTreeMap::from([("unreadable", why)]).serialize(serializer),
    }
}

/// A script that makes a write, with what it is given.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: &'static str,
    pub(super) params: Value,
}

/// The script for a request, unless the request is none for a script. A settle or undo leaves this
/// mark.
pub(super) fn call(
    transaction: &Transaction,
    request: Request,
    reason: Option<Reason>,
    mark: Fence,
) -> Option<Call> {
    let id = transaction.id();
    let slot = Fence::slot(id).to_string();
    let release = |settle: bool| {
        (
            RELEASE,
            json!({"id": id, "slot": slot, "mark": mark, "settle": settle}),
        )
    };
    let (script, params) = match request {
        Request::Advance(from, event) => {
            let to = from.next(event).ok()?;
            let reason = reason.filter(|_| matches!(to, State::Terminating | State::RolledBack));
            let params = json!({"from": from, "to": to, "reason": reason, "ended": to.is_final()});
            (ADVANCE, params)
        }
        Request::Touch(state) => return Some(touch(state, false)),
        Request::Hold(effect, seen) => (HOLD, hold(id, transaction.effects().get(effect)?, seen)),
        Request::Settle(_) => release(true),
        Request::Undo(_) => release(false),
        Request::Read | Request::ReadMark(_) | Request::Create => return None,
    };
    Some(Call { script, params })
}

/// The script that writes a transaction in this state and leaves it there, with its next attempt
/// put off: for longer after each that is counted.
pub(super) fn touch(state: State, counted: bool) -> Call {
    let params = json!({"state": state, "ended": state.is_final(), "counted": counted});
    Call {
        script: TOUCH,
        params,
    }
}

/// The script that counts what transactions gave a document which ended in this time.
pub(super) fn count_past(from: i64, add: i64, before: i64) -> Call {
    Call {
        script: PRUNE,
        params: json!({"from": from, "add": add, "before": before}),
    }
}

fn hold(id: &TransactionId, effect: &Effect, seen: Fence) -> Value {
    let set = Some(&effect.set).filter(|set| !set.is_empty());
    json!({
        "id": id, "slot": Fence::slot(id).to_string(), "mark": seen, "add": effect.add, "set": set,
        "most": MAX_AMOUNT, "holds": MAX_HOLDS,
    })
}
