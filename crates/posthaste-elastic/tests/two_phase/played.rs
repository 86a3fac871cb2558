//! The published protocol, run by its own pipeline and scripts up to each of its steps: each result
//! is adopted and ended.

use std::time::Duration;

use posthaste_elastic::two_phase::{Coordinator, State};
use posthaste_elastic::{Client, Operation, Script};
use serde_json::{Value, json};

use super::{balances, state};
use crate::support;

const PIPELINE: &str = "played-initialize-time";

/// Names and sources, with the published names of fields and parameters.
const SCRIPTS: [(&str, &str); 4] = [
    (
        "played-update-transaction-state",
        "if (ctx._source.transaction_state == params.current_state) {
            ctx._source.transaction_state = params.desired_state;
            DateFormat df = new SimpleDateFormat(\"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\");
            df.setTimeZone(TimeZone.getTimeZone('UTC'));
            ctx._source.modification_time = df.format(new Date());
         } else { ctx.op = 'noop' }",
    ),
    (
        "played-apply",
        "if (ctx._source.pending_transactions.indexOf(params.trans_id) >= 0) { ctx.op = 'noop' } \
            else {
            ctx._source.pending_transactions.add(params.trans_id);
            ctx._source.balance += params.amount;
         }",
    ),
    (
        "played-remove",
        "def at = ctx._source.pending_transactions.indexOf(params.trans_id);
         if (at >= 0) { ctx._source.pending_transactions.remove(at) } else { ctx.op = 'noop' }",
    ),
    (
        "played-undo",
        "def at = ctx._source.pending_transactions.indexOf(params.trans_id);
         if (at >= 0) {
            ctx._source.pending_transactions.remove(at);
            ctx._source.balance -= params.amount;
         } else { ctx.op = 'noop' }",
    ),
];

/// A request of the protocol.
#[derive(Clone, Copy)]
enum ProtocolRequest {
    To(&'static str, &'static str),
    Apply(usize),
    Remove(usize),
    Undo(usize),
}
use ProtocolRequest::{Apply, Remove, To, Undo};

const HAPPENS: [ProtocolRequest; 7] = [
    To("created", "pending"),
    Apply(0),
    Apply(1),
    To("pending", "committed"),
    Remove(0),
    Remove(1),
    To("committed", "finished"),
];
const IS_UNDONE: [ProtocolRequest; 7] = [
    To("created", "pending"),
    Apply(0),
    Apply(1),
    To("pending", "terminating"),
    Undo(0),
    Undo(1),
    To("terminating", "rolled-back"),
];
/// Rolled back between the two accounts.
const IS_UNDONE_EARLY: [ProtocolRequest; 5] = [
    To("created", "pending"),
    Apply(0),
    To("pending", "terminating"),
    Undo(0),
    To("terminating", "rolled-back"),
];

/// Creates two accounts of 500 and a transfer of 100 between them, and makes these requests.
async fn play(client: &Client, id: &str, moves: &[ProtocolRequest]) {
    let accounts = [format!("{id}-src"), format!("{id}-dest")];
    for account in &accounts {
        let empty = json!({"balance": 500, "pending_transactions": []});
        let put = Operation::index("played-documents", account, &empty).unwrap();
        client.write(&put).await.unwrap();
    }
    let transfer = json!({"src_acct": accounts[0], "dest_acct": accounts[1], "amount": 100,
        "transaction_state": "created"});
    let create = Operation::create("played-transactions", id, &transfer).unwrap();
    client.write(&create.through(PIPELINE)).await.unwrap();
    for one in moves {
        let amount =
            |at: usize| json!({"trans_id": id, "amount": if at == 0 { -100 } else { 100 }});
        let (script, params, at) = match *one {
            To(from, to) => {
                let params = json!({"current_state": from, "desired_state": to});
                (0, params, None)
            }
            Apply(at) => (1, amount(at), Some(at)),
            Remove(at) => (2, json!({"trans_id": id}), Some(at)),
            Undo(at) => (3, amount(at), Some(at)),
        };
        let script = Script {
            id: SCRIPTS[script].0,
            params,
        };
        let update = match at {
            Some(at) => Operation::update("played-documents", &accounts[at], &script),
            None => Operation::update("played-transactions", id, &script),
        };
        client.write(&update.unwrap()).await.unwrap();
    }
}

async fn published(client: &Client) {
    let time = |field: &str| {
        json!({"set": {"field": format!("_source.{field}"),
        "value": "{{_ingest.timestamp}}"}})
    };
    let pipeline = json!({"processors": [time("creation_time"), time("modification_time")]});
    client.put_pipeline(PIPELINE, &pipeline).await.unwrap();
    for (name, source) in SCRIPTS {
        client.put_script(name, source).await.unwrap();
    }
    super::adopted::published(client, "played").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_script_transactions_at_every_step_are_adopted() {
    let Some(client) = support::opensearch("played") else {
        return;
    };
    published(&client).await;
    let mut ends: Vec<(String, State)> = Vec::new();
    for (name, moves) in [
        ("happens", &HAPPENS[..]),
        ("undone", &IS_UNDONE),
        ("early", &IS_UNDONE_EARLY),
    ] {
        for made in 0..=moves.len() {
            let id = format!("{name}-{made}");
            play(&client, &id, &moves[..made]).await;
            let given_up = |one: &ProtocolRequest| matches!(one, To(_, "terminating"));
            let end = match moves[..made].iter().any(given_up) {
                true => State::RolledBack,
                false => State::Finished,
            };
            ends.push((id, end));
        }
    }
    let coordinator = Coordinator::new(client.clone(), "played-documents", "played-transactions");
    let adopted = coordinator.adopt().await.unwrap();
    assert_eq!(adopted.transactions, ends.len() as u64);
    assert_eq!(adopted.doubts, Vec::<String>::new());
    client.refresh("played-transactions").await.unwrap();
    let recovered = coordinator.recover(Duration::ZERO).await.unwrap();
    assert!(recovered.open.is_empty(), "{recovered:?}");
    for (id, end) in &ends {
        assert_eq!(state(&coordinator, id).await, Some(*end), "{id}");
        let accounts = [format!("{id}-src"), format!("{id}-dest")];
        let left = balances(&coordinator, &accounts.each_ref().map(String::as_str)).await;
        let left: Value = json!([left[&accounts[0]], left[&accounts[1]]]);
        let moved = match end {
            State::Finished => json!([400, 600]),
            _ => json!([500, 500]),
        };
        assert_eq!(left, moved, "{id}");
    }
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
}
