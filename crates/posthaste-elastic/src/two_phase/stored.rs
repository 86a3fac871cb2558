//! Contents of the two indexes: scripts, mappings, and transactions as documents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::document::{Fence, MAX_HOLDS};
use super::execution::Reason;
use super::request::Request;
use super::state::State;
use super::transaction::{Effect, MAX_AMOUNT, Refusal, Transaction, TransactionId};

/// The scripts and the names under which they are stored. A changed script gets another name: old
/// and new programs run at the same time.
pub(super) const SCRIPTS: [(&str, &str); 5] = [
    (
        ADVANCE_SCRIPT,
        include_str!("../../scripts/advance.painless"),
    ),
    (TOUCH_SCRIPT, include_str!("../../scripts/touch.painless")),
    (HOLD_SCRIPT, include_str!("../../scripts/hold.painless")),
    (
        RELEASE_SCRIPT,
        include_str!("../../scripts/release.painless"),
    ),
    (PRUNE_SCRIPT, include_str!("../../scripts/prune.painless")),
];
const ADVANCE_SCRIPT: &str = "posthaste-two-phase-advance-1";
const TOUCH_SCRIPT: &str = "posthaste-two-phase-touch-2";
const HOLD_SCRIPT: &str = "posthaste-two-phase-hold-1";
const RELEASE_SCRIPT: &str = "posthaste-two-phase-release-1";
const PRUNE_SCRIPT: &str = "posthaste-two-phase-prune-1";

/// The pipeline that sets the times of a new transaction.
pub(super) const TIMES_PIPELINE: (&str, &str) = (
    "posthaste-two-phase-times-1",
    include_str!("../../mappings/times.json"),
);

pub(super) const DOCUMENTS_MAPPING: &str = include_str!("../../mappings/documents.json");
pub(super) const TRANSACTIONS_MAPPING: &str = include_str!("../../mappings/transactions.json");

/// A transaction as it is stored. The server sets its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The state of the transaction.
    pub transaction_state: State,
    /// The effects of the transaction.
    pub effects: Vec<Effect>,
    /// The number of recovery attempts that did not end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// The reason why it was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The time when it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
    /// The time when its state last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modification_time: Option<String>,
    /// The time from which recovery may run it.
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

    /// Converts the record to a transaction.
    ///
    /// # Errors
    /// The record breaks a rule: another program wrote it.
    pub fn transaction(&self, id: &str) -> Result<Transaction, Refusal> {
        Transaction::new(id, self.effects.clone())
    }
}

/// Serializes a stored record next to the id of its transaction, or the reason why it cannot be
/// read.
pub(super) fn record_or_error<S: Serializer>(
    record: &Result<Record, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match record {
        Ok(record) => record.serialize(serializer),
        Err(why) => BTreeMap::from([("unreadable", why)]).serialize(serializer),
    }
}

/// A script that makes a write, with its parameters.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) script: &'static str,
    pub(super) params: Value,
}

/// Returns the script for a request, `None` if it needs none. A settle or undo writes this mark.
pub(super) fn script_call(
    transaction: &Transaction,
    request: Request,
    reason: Option<Reason>,
    mark: Fence,
) -> Option<ScriptCall> {
    let id = transaction.id();
    let slot = Fence::slot(id).to_string();
    let release = |settle: bool| {
        (
            RELEASE_SCRIPT,
            json!({"id": id, "slot": slot, "mark": mark, "settle": settle}),
        )
    };
    let (script, params) = match request {
        Request::Advance(from, event) => {
            let to = from.next(event).ok()?;
            let reason = reason.filter(|_| matches!(to, State::Terminating | State::RolledBack));
            let params = json!({"from": from, "to": to, "reason": reason, "ended": to.is_final()});
            (ADVANCE_SCRIPT, params)
        }
        Request::Touch(state) => return Some(touch_call(state, false)),
        Request::Hold(effect, seen) => (
            HOLD_SCRIPT,
            hold_params(id, transaction.effects().get(effect)?, seen),
        ),
        Request::Settle(_) => release(true),
        Request::Undo(_) => release(false),
        Request::Read | Request::ReadMark(_) | Request::Create => return None,
    };
    Some(ScriptCall { script, params })
}

/// Returns the script that rewrites a transaction in this state without a change of the state. It
/// postpones the next attempt, for longer after each counted attempt.
pub(super) fn touch_call(state: State, counted: bool) -> ScriptCall {
    let params = json!({"state": state, "ended": state.is_final(), "counted": counted});
    ScriptCall {
        script: TOUCH_SCRIPT,
        params,
    }
}

/// Returns the script that counts the amounts that transactions which ended in this time added to a
/// document.
pub(super) fn count_past_call(from: i64, add: i64, before: i64) -> ScriptCall {
    ScriptCall {
        script: PRUNE_SCRIPT,
        params: json!({"from": from, "add": add, "before": before}),
    }
}

fn hold_params(id: &TransactionId, effect: &Effect, seen: Fence) -> Value {
    let set = Some(&effect.set).filter(|set| !set.is_empty());
    json!({
        "id": id, "slot": Fence::slot(id).to_string(), "mark": seen, "add": effect.add, "set": set,
        "most": MAX_AMOUNT, "holds": MAX_HOLDS,
    })
}
