//! Converts documents of the published protocol. No IO, no clock.
//!
//! In that protocol, an account gets its new balance when a transaction is applied to it, and lists
//! the transaction's id. Here, a document holds the change, and its balance changes when it is
//! settled. An account that lists a transaction therefore gets its previous balance and a hold:
//! settled, it has its present balance again; undone, the previous one.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::document::Hold;
use super::execution::Reason;
use super::state::State;
use super::stored::Record;
use super::transaction::{Transaction, TransactionId};

/// The field that accounts have until they are adopted.
const LISTED_FIELD: &str = "pending_transactions";
/// The time of open transactions without one: recovery finds them first.
const DEFAULT_TIME: &str = "1970-01-01T00:00:00Z";

/// A transaction as the published protocol writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedTransaction {
    src_acct: String,
    dest_acct: String,
    amount: i64,
    transaction_state: State,
    #[serde(default)]
    creation_time: Option<String>,
    #[serde(default)]
    modification_time: Option<String>,
}

/// A transaction, in either format.
#[derive(Clone, Debug)]
pub(super) struct ParsedTransaction {
    pub(super) transaction: Transaction,
    pub(super) record: Record,
    /// Whether it still has to be converted.
    pub(super) is_published: bool,
}

/// Reads a transaction in either format.
pub(super) fn parse_transaction(id: &str, source: &str) -> Result<ParsedTransaction, String> {
    let (record, is_published) = match serde_json::from_str::<Record>(source) {
        Ok(record) => (record, false),
        Err(ours) => {
            // Its fields show its format.
            let is_theirs = source.contains("src_acct");
            let why = |theirs| if is_theirs { theirs } else { ours.to_string() };
            (parse_published(id, source).map_err(why)?, true)
        }
    };
    let transaction = record.transaction(id).map_err(|rule| rule.to_string())?;
    Ok(ParsedTransaction {
        transaction,
        record,
        is_published,
    })
}

fn parse_published(id: &str, source: &str) -> Result<Record, String> {
    let published: PublishedTransaction =
        serde_json::from_str(source).map_err(|error| error.to_string())?;
    let (from, to) = (&published.src_acct, &published.dest_acct);
    let transfer = Transaction::transfer(id, from, to, published.amount);
    let transfer = transfer.map_err(|rule| rule.to_string())?;
    let mut record = Record::new(&transfer, published.transaction_state);
    record.creation_time = published.creation_time;
    record.modification_time = published.modification_time;
    Ok(record)
}

/// Returns the new record of a transaction. `is_listed`: an account still lists or holds it.
pub(super) fn adopted_record(known: &ParsedTransaction, is_listed: bool) -> Record {
    let mut record = known.record.clone();
    let (state, reason) = match record.transaction_state {
        // It was undone everywhere, and then a late request applied it again: it is undone again.
        State::RolledBack if is_listed => (State::Terminating, Some(Reason::Listed)),
        // Either its last step was lost, or it was applied twice: the documents do not show which.
        State::Finished if is_listed => (State::Committed, Some(Reason::Listed)),
        // A late request wrote its state: it had begun.
        State::Created if is_listed => (State::Pending, None),
        state => (state, None),
    };
    (record.transaction_state, record.reason) = (state, reason);
    if !record.transaction_state.is_final() {
        let time = record.modification_time.clone();
        let time = time.unwrap_or_else(|| DEFAULT_TIME.to_owned());
        record.modification_time = Some(time.clone());
        record.next_attempt_at = Some(time);
    }
    record
}

/// Returns a warning about a converted transaction for an operator. The transaction contains the
/// reason, so that later adoptions can repeat the warning.
pub(super) fn adoption_warning(id: &str, record: &Record) -> Option<String> {
    if record.reason != Some(Reason::Listed) {
        return None;
    }
    Some(match record.transaction_state {
        State::Terminating | State::RolledBack => format!(
            "{id} was rolled back but was still listed by an account: its change there is undone"
        ),
        _ => format!(
            "{id} was finished but was still listed by an account: the balance is unchanged, and \
             may include it twice"
        ),
    })
}

/// Returns the transactions that an account lists or holds.
pub(super) fn listed_ids(account: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut ids = Vec::new();
    for (field, inner) in [(LISTED_FIELD, None), ("holds", Some("id"))] {
        let several = match account.get(field) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(several)) => several.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        for one in several {
            let id = inner.map_or(Some(one), |inner| one.get(inner));
            let id = id.and_then(Value::as_str);
            let id = id.ok_or_else(|| format!("{field} contains something that is not an id"))?;
            if ids.iter().any(|known| known == id) {
                return Err(format!("it contains {id} twice"));
            }
            ids.push(id.to_owned());
        }
    }
    Ok(ids)
}

/// Returns the new fields of an account, `None` if it is converted already. `find` returns the
/// transactions that it lists.
pub(super) fn adopted_fields<'a>(
    name: &str,
    mut account: Map<String, Value>,
    find: impl Fn(&str) -> Option<&'a ParsedTransaction>,
) -> Result<Option<Map<String, Value>>, String> {
    let ids = listed_ids(&account)?;
    let Some(list) = account.remove(LISTED_FIELD) else {
        return Ok(None);
    };
    let balance = account.get("balance").and_then(Value::as_i64);
    let mut balance = balance.ok_or("its balance is not a whole number")?;
    let mut holds: Vec<Value> = match account.remove("holds") {
        Some(Value::Array(holds)) => holds,
        _ => Vec::new(),
    };
    let is_in_list = |id: &&String| match &list {
        Value::Array(list) => list.iter().any(|one| one == id.as_str()),
        one => one == id.as_str(),
    };
    for id in ids.iter().filter(is_in_list) {
        let known = find(id).ok_or_else(|| format!("it lists {id}, which does not exist"))?;
        let mut effects = known.transaction.effects().iter();
        let effect = effects.find(|effect| effect.document == name);
        let effect = effect.ok_or_else(|| format!("it lists {id}, which does not change it"))?;
        balance = balance
            .checked_sub(effect.add)
            .ok_or("its balance is too large")?;
        let hold = Hold {
            id: TransactionId::new(id).map_err(|rule| rule.to_string())?,
            add: effect.add,
            set: effect.set.clone(),
        };
        holds.push(json!(hold));
    }
    account.insert("balance".to_owned(), balance.into());
    account.insert("holds".to_owned(), holds.into());
    Ok(Some(account))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(state: &str) -> ParsedTransaction {
        let source = json!({"src_acct": "A", "dest_acct": "B", "amount": 100,
            "transaction_state": state,
            "creation_time": "2026-11-01T00:00:00Z", "modification_time": "2026-11-01T00:00:\
                01.000987Z"});
        parse_transaction("txn1", &source.to_string()).unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn adopted_accounts_keep_their_balance_and_holds() {
        let known = published("pending");
        let of = |name: &str, balance: i64| {
            let before = object(
                json!({"balance": balance, "pending_transactions": ["txn1"], "owner": "ann"}),
            );
            let after = adopted_fields(name, before, |id| (id == "txn1").then_some(&known));
            Value::Object(after.unwrap().unwrap())
        };
        let held = |add: i64| {
            json!({"balance": 500, "holds": [{"id": "txn1", "add": add}],
            "owner": "ann"})
        };
        assert_eq!(of("A", 400), held(-100));
        assert_eq!(of("B", 600), held(100));
        let adopted = object(held(-100));
        assert_eq!(adopted_fields("A", adopted, |_| None), Ok(None));
    }

    #[test]
    fn adopted_transactions_reopen_only_if_an_account_lists_them() {
        for state in State::ALL {
            let known = published(&state.to_string());
            assert!(known.is_published);
            let record = adopted_record(&known, false);
            assert_eq!(record.transaction_state, state);
            assert_eq!(adoption_warning("txn1", &record), None);
            assert_eq!(record.next_attempt_at.is_some(), !state.is_final());
            let record = adopted_record(&known, true);
            let expected = match state {
                State::RolledBack => State::Terminating,
                State::Finished => State::Committed,
                State::Created => State::Pending,
                other => other,
            };
            assert_eq!(record.transaction_state, expected);
            assert_eq!(
                adoption_warning("txn1", &record).is_some(),
                state.is_final()
            );
            // Once converted it is not converted again.
            let source = serde_json::to_string(&record).unwrap();
            assert!(!parse_transaction("txn1", &source).unwrap().is_published);
        }
    }

    #[test]
    fn unadoptable_transactions_and_accounts_are_refused_with_the_reason() {
        let of = |source: Value| parse_transaction("t", &source.to_string()).unwrap_err();
        let with = |more: Value| {
            let mut source = json!({"src_acct": "A", "dest_acct": "B", "amount": 1,
                "transaction_state": "created"});
            source.as_object_mut().unwrap().extend(object(more));
            source
        };
        assert!(of(with(json!({"amount": 0}))).contains("from 1 to 2^53"));
        assert!(of(with(json!({"dest_acct": "A"}))).contains("one effect for each document"));
        assert!(of(with(json!({"memo": "x"}))).contains("memo"));
        assert!(of(with(json!({"transaction_state": "lost"}))).contains("lost"));
        let known = published("pending");
        let listing = |ids: Value| object(json!({"balance": 1, "pending_transactions": ids}));
        let find = |id: &str| (id == "txn1").then_some(&known);
        let wrong = |name: &str, ids: Value| adopted_fields(name, listing(ids), find).unwrap_err();
        assert!(wrong("A", json!(["other"])).contains("does not exist"));
        assert!(wrong("C", json!(["txn1"])).contains("does not change it"));
        assert!(wrong("A", json!(["txn1", "txn1"])).contains("twice"));
        assert!(wrong("A", json!([7])).contains("not an id"));
    }
}
