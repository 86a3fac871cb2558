//! Documents of the published protocol, in each of its states and between them, are adopted and run
//! to their ends.

use std::time::Duration;

use posthaste_elastic::two_phase::{Coordinator, Failure, State, Transaction};
use posthaste_elastic::{Client, ErrorKind, Operation, Script};
use posthaste_testkit::ran;
use serde_json::{Value, json};

use super::{document, state};
use crate::support;

/// The state of a transfer of 100 by the published protocol between two accounts of 500, and its
/// expected end.
struct Case {
    name: &'static str,
    state: &'static str,
    /// Source and destination: whether it is applied, and whether it is in the list.
    applied: [bool; 2],
    listed: [bool; 2],
    end: State,
    left: [i64; 2],
    is_doubtful: bool,
}

const fn case(
    name: &'static str,
    state: &'static str,
    applied: [bool; 2],
    listed: [bool; 2],
    happens: bool,
) -> Case {
    Case {
        name,
        state,
        applied,
        listed,
        end: if happens {
            State::Finished
        } else {
            State::RolledBack
        },
        left: if happens { [400, 600] } else { [500, 500] },
        is_doubtful: false,
    }
}

const fn doubtful(case: Case) -> Case {
    Case {
        is_doubtful: true,
        ..case
    }
}

const NO: [bool; 2] = [false; 2];
const BOTH: [bool; 2] = [true; 2];
const FIRST: [bool; 2] = [true, false];
const SECOND: [bool; 2] = [false, true];

const CASES: [Case; 14] = [
    case("created", "created", NO, NO, true),
    case("pending-0", "pending", NO, NO, true),
    case("pending-1", "pending", FIRST, FIRST, true),
    case("pending-2", "pending", BOTH, BOTH, true),
    case("committed-0", "committed", BOTH, BOTH, true),
    case("committed-1", "committed", BOTH, SECOND, true),
    case("committed-2", "committed", BOTH, NO, true),
    case("finished", "finished", BOTH, NO, true),
    case("terminating-0", "terminating", BOTH, BOTH, false),
    case("terminating-1", "terminating", SECOND, SECOND, false),
    case("terminating-2", "terminating", NO, NO, false),
    case("rolled-back", "rolled-back", NO, NO, false),
    // A late request applied it again, and the removal of an id was lost.
    doubtful(case("rolled-back-late", "rolled-back", FIRST, FIRST, false)),
    doubtful(case("finished-late", "finished", BOTH, FIRST, true)),
];

/// Creates indexes with the published mappings and names of fields.
pub(super) async fn published(client: &Client, name: &str) {
    let settings = json!({"number_of_replicas": 0});
    let accounts = json!({"settings": settings, "mappings": {"properties": {
        "balance": {"type": "long"}, "pending_transactions": {"type": "keyword"}}}});
    let transactions = json!({"settings": settings, "mappings": {"properties": {
        "amount": {"type": "long"}, "creation_time": {"type": "date"},
        "modification_time": {"type": "date"},
        "dest_account": {"type": "keyword"}, "src_account": {"type": "keyword"},
        "transaction_state": {"type": "keyword"}}}});
    for (index, definition) in [("documents", accounts), ("transactions", transactions)] {
        let index = format!("{name}-{index}");
        assert!(client.create_index(&index, &definition).await.unwrap());
    }
}

async fn put(client: &Client, index: &str, id: &str, document: Value) {
    let put = Operation::index(index, id, &document).unwrap();
    client.write(&put).await.unwrap();
}

async fn populate(client: &Client, name: &str) {
    for case in &CASES {
        let accounts = [format!("{}-src", case.name), format!("{}-dest", case.name)];
        for (at, account) in accounts.iter().enumerate() {
            let moved = if at == 0 { -100 } else { 100 };
            let balance = 500 + if case.applied[at] { moved } else { 0 };
            let list = if case.listed[at] {
                vec![case.name]
            } else {
                vec![]
            };
            let account = account.as_str();
            let source = json!({"balance": balance, "pending_transactions": list, "owner": "ann"});
            put(client, &format!("{name}-documents"), account, source).await;
        }
        let source = json!({"src_acct": accounts[0], "dest_acct": accounts[1], "amount": 100,
            "transaction_state": case.state, "creation_time": "2026-11-01T00:00:00.123Z",
            "modification_time": "2026-11-01T00:00:01.000987Z"});
        put(client, &format!("{name}-transactions"), case.name, source).await;
    }
}

/// Checks that recovery ends all transactions, and that an audit finds nothing.
async fn assert_adopted(coordinator: &Coordinator, client: &Client, name: &str) {
    let transactions = format!("{name}-transactions");
    client.refresh(&transactions).await.unwrap();
    let recovered = coordinator.recover(Duration::ZERO).await.unwrap();
    assert!(recovered.open.is_empty(), "{recovered:?}");
    for case in &CASES {
        assert_eq!(
            state(coordinator, case.name).await,
            Some(case.end),
            "{}",
            case.name
        );
        for (at, account) in ["src", "dest"].into_iter().enumerate() {
            let account = format!("{}-{account}", case.name);
            let found = document(coordinator, &account).await;
            assert_eq!(
                (found.balance, found.holds.len()),
                (case.left[at], 0),
                "{account}"
            );
            let raw = client.get(&format!("{name}-documents"), &account).await;
            let raw: Value = raw.unwrap().unwrap().read().unwrap();
            assert_eq!(raw["owner"], "ann", "what is not ours stays");
            assert!(raw.get("pending_transactions").is_none());
        }
    }
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert_eq!((audit.unopened, audit.moving), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn published_protocol_transactions_in_every_state_are_adopted() {
    let Some(client) = support::opensearch("adopted") else {
        return;
    };
    published(&client, "adopted").await;
    populate(&client, "adopted").await;
    let coordinator = Coordinator::new(client.clone(), "adopted-documents", "adopted-transactions");
    let refused = coordinator.recover(Duration::ZERO).await;
    assert!(
        matches!(refused, Err(Failure::Misconfigured(_))),
        "{refused:?}"
    );
    let adopted = coordinator.adopt().await.unwrap();
    assert_eq!((adopted.documents, adopted.transactions), (28, 14));
    let doubtful = CASES.iter().filter(|case| case.is_doubtful);
    assert_eq!(adopted.doubts.len(), doubtful.count(), "{adopted:?}");
    // The other protocol's account scripts no longer find a list.
    let late = "adopted-late";
    let source = "ctx._source.pending_transactions.add(params.id); ctx._source.balance += 100;";
    client.put_script(late, source).await.unwrap();
    let params = json!({"id": "created"});
    let script = Script { id: late, params };
    let update = Operation::update("adopted-documents", "created-src", &script).unwrap();
    let refused = client.write(&update).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert_adopted(&coordinator, &client, "adopted").await;
    let again = coordinator.adopt().await.unwrap();
    assert_eq!((again.documents, again.transactions), (0, 0));
    // The first caller may have died before it reported the doubts.
    assert_eq!(again.doubts, adopted.doubts);
    let new = Transaction::transfer("new", "created-src", "finished-dest", 400).unwrap();
    coordinator.run(&new).await.unwrap();
    ran::note("two-phase-adopted");
}

/// Some documents are in the new format already, and the adoption is interrupted repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_adoptions_resume() {
    let name = "half-adopted";
    let Some(client) = support::opensearch(name) else {
        return;
    };
    published(&client, name).await;
    populate(&client, name).await;
    let (documents, transactions) = (format!("{name}-documents"), format!("{name}-transactions"));
    for (index, mapping) in [
        (&documents, include_str!("../../mappings/documents.json")),
        (
            &transactions,
            include_str!("../../mappings/transactions.json"),
        ),
    ] {
        let mapping: Value = serde_json::from_str(mapping).unwrap();
        let fields = json!({"properties": mapping["properties"]});
        client.put_mapping(index, &fields).await.unwrap();
    }
    let of_ours = json!({"transaction_state": "committed",
        "effects": [{"document": "ours", "add": 7}],
        "modification_time": "2026-11-01T00:00:00Z", "next_attempt_at": "2026-11-01T00:00:00Z"});
    put(&client, &transactions, "of-ours", of_ours).await;
    let ours = json!({"balance": 5, "opened": 5, "holds": [{"id": "of-ours", "add": 7}]});
    put(&client, &documents, "ours", ours).await;
    let coordinator = Coordinator::new(client.clone(), &documents, &transactions);
    let mut died = 0;
    let mut patience = Duration::from_millis(20);
    loop {
        match tokio::time::timeout(patience, coordinator.adopt()).await {
            Ok(Ok(_)) => break,
            Err(_) => died += 1,
            // Requests that were in flight from the previous attempt were executed.
            Ok(Err(Failure::Misconfigured(why))) if why.contains("meanwhile") => {}
            Ok(Err(other)) => panic!("{other}"),
        }
        patience = patience.mul_f64(1.3);
    }
    println!("died {died} times");
    assert!(died > 0);
    assert_adopted(&coordinator, &client, name).await;
    assert_eq!(document(&coordinator, "ours").await.balance, 12);
}

#[tokio::test]
async fn unadoptable_data_is_reported_and_nothing_is_written() {
    let Some(client) = support::opensearch("unadoptable") else {
        return;
    };
    published(&client, "unadoptable").await;
    let (documents, transactions) = ("unadoptable-documents", "unadoptable-transactions");
    let account = json!({"balance": 1, "pending_transactions": ["nobody"]});
    put(&client, documents, "lists", account.clone()).await;
    let itself = json!({"src_acct": "lists", "dest_acct": "lists", "amount": 1,
        "transaction_state": "pending"});
    put(&client, transactions, "itself", itself).await;
    let coordinator = Coordinator::new(client.clone(), documents, transactions);
    let refused = coordinator.adopt().await.unwrap_err();
    assert!(!refused.may_have_moved_by_this_call());
    let text = refused.to_string();
    for part in [
        "document lists",
        "nobody",
        "transaction itself",
        "one effect for each document",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let found: Value = client
        .get(documents, "lists")
        .await
        .unwrap()
        .unwrap()
        .read()
        .unwrap();
    assert_eq!(found, account);
    let described = client.describe_index(documents).await.unwrap().unwrap();
    assert!(described["mappings"]["properties"].get("holds").is_none());
}
