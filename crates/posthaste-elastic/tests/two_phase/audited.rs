//! The audit finds each corruption, names the contradictory documents, and finds nothing while
//! transfers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste_elastic::Operation;
use posthaste_elastic::two_phase::{
    AuditReport, Coordinator, Execution, Failure, Fault, State, Step, Transaction,
};
use posthaste_testkit::ran;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fake::{Marks, carried, fake};
use super::{coordinator, opened};

/// Runs a transfer up to this step, and abandons it there.
async fn left_behind(coordinator: &Coordinator, name: &str, from: &str, to: &str, last: Step) {
    let transfer = Transaction::transfer(name, from, to, 10).unwrap();
    let mut execution = Execution::for_new(2, 1);
    while {
        let step = execution.step();
        coordinator.run_step(&transfer, &mut execution).await;
        step != last
    } {}
}

/// The expected finding: the document, the transaction, the fault.
type Expected = (
    Option<&'static str>,
    Option<&'static str>,
    fn(&Fault) -> bool,
);

/// A corruption of one document in one of the two indexes.
struct Corruption {
    index: &'static str,
    id: &'static str,
    /// The change; `None` deletes the document.
    change: Option<fn(&mut Value)>,
    found: &'static [Expected],
}

const fn document_fault(
    id: &'static str,
    change: fn(&mut Value),
    found: &'static [Expected],
) -> Corruption {
    Corruption {
        index: "documents",
        id,
        change: Some(change),
        found,
    }
}

const fn transaction_fault(
    id: &'static str,
    change: fn(&mut Value),
    found: &'static [Expected],
) -> Corruption {
    Corruption {
        index: "transactions",
        id,
        change: Some(change),
        found,
    }
}

fn push(list: &mut Value, one: Value) {
    list.as_array_mut().unwrap().push(one);
}

const CORRUPTIONS: &[Corruption] = &[
    // A balance changed by hand.
    document_fault(
        "a",
        |doc| doc["balance"] = json!(doc["balance"].as_i64().unwrap() + 1),
        &[(Some("a"), None, |fault| {
            matches!(fault, Fault::Balance { .. })
        })],
    ),
    // An effect without its transaction.
    Corruption {
        index: "transactions",
        id: "done",
        change: None,
        found: &[
            (Some("a"), None, |fault| {
                matches!(
                    fault,
                    Fault::Balance {
                        has: 90,
                        should_have: 100
                    }
                )
            }),
            (Some("b"), None, |fault| {
                matches!(
                    fault,
                    Fault::Balance {
                        has: 110,
                        should_have: 100
                    }
                )
            }),
        ],
    },
    // A hold without its transaction.
    document_fault(
        "a",
        |doc| push(&mut doc["holds"], json!({"id": "ghost", "add": -1})),
        &[(Some("a"), Some("ghost"), |fault| *fault == Fault::Unknown)],
    ),
    // A hold of a finished transaction.
    document_fault(
        "a",
        |doc| push(&mut doc["holds"], json!({"id": "done", "add": -10})),
        &[
            (Some("a"), None, |fault| {
                matches!(fault, Fault::Balance { .. })
            }),
            (Some("a"), Some("done"), |fault| {
                *fault == Fault::Ended(State::Finished)
            }),
        ],
    ),
    document_fault(
        "a",
        |doc| doc["holds"][0]["add"] = json!(-11),
        &[(Some("a"), Some("open"), |fault| *fault == Fault::Other)],
    ),
    document_fault(
        "a",
        |doc| {
            let hold = doc["holds"][0].clone();
            push(&mut doc["holds"], hold);
        },
        &[(Some("a"), Some("open"), |fault| *fault == Fault::Twice)],
    ),
    document_fault(
        "c",
        |doc| {
            for hold in doc["holds"].as_array_mut().unwrap() {
                hold["set"] = json!({"owner": "ann"});
            }
        },
        &[
            (Some("c"), None, |fault| *fault == Fault::BothSet),
            (Some("c"), Some("open"), |fault| *fault == Fault::Other),
            (Some("c"), Some("decided"), |fault| *fault == Fault::Other),
        ],
    ),
    // A committed transaction whose hold was removed and not settled.
    document_fault(
        "b",
        |doc| doc["holds"] = json!([]),
        &[(Some("b"), None, |fault| {
            matches!(fault, Fault::Balance { .. })
        })],
    ),
    document_fault(
        "a",
        |doc| doc["fences"]["64"] = json!(7),
        &[(Some("a"), None, |fault| *fault == Fault::Mark(64))],
    ),
    document_fault(
        "a",
        |doc| doc["fences"]["3"] = json!(0),
        &[(Some("a"), None, |fault| *fault == Fault::Mark(3))],
    ),
    document_fault(
        "a",
        |doc| {
            doc["opened"] = json!(15);
            doc["balance"] = json!(5);
        },
        &[(Some("a"), None, |fault| *fault == Fault::Overdrawn(-5))],
    ),
    document_fault(
        "a",
        |doc| push(&mut doc["holds"], json!({"id": "no name", "add": 1})),
        &[(Some("a"), None, |fault| {
            matches!(fault, Fault::Unreadable(_))
        })],
    ),
    transaction_fault(
        "given-up",
        |record| record["transaction_state"] = json!("lost"),
        &[(None, Some("given-up"), |fault| {
            matches!(fault, Fault::Unreadable(_))
        })],
    ),
    transaction_fault(
        "open",
        |record| {
            record.as_object_mut().unwrap().remove("next_attempt_at");
        },
        &[(None, Some("open"), |fault| *fault == Fault::Unfindable)],
    ),
    transaction_fault(
        "given-up",
        |record| {
            let effect = record["effects"][0].clone();
            push(&mut record["effects"], effect);
        },
        &[(None, Some("given-up"), |fault| {
            matches!(fault, Fault::Rule(_))
        })],
    ),
    Corruption {
        index: "documents",
        id: "b",
        change: None,
        found: &[
            (Some("b"), Some("done"), |fault| *fault == Fault::Missing),
            (Some("b"), Some("decided"), |fault| *fault == Fault::Missing),
        ],
    },
];

/// Creates a few documents with transactions in every state, and then makes one corruption at a
/// time.
async fn each_is_caught(coordinator: &Coordinator, prefix: &str) {
    let accounts = ["a", "b", "c"];
    opened(coordinator, &accounts.map(|account| (account, 100))).await;
    left_behind(coordinator, "done", "a", "b", Step::Finish).await;
    left_behind(coordinator, "open", "a", "c", Step::Hold).await;
    left_behind(coordinator, "decided", "c", "b", Step::Commit).await;
    let given_up = Transaction::transfer("given-up", "b", "a", 1).unwrap();
    coordinator.create_transaction(&given_up).await.unwrap();
    coordinator.roll_back("given-up").await.unwrap();
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert_eq!((audit.documents, audit.unopened, audit.moving), (3, 0, 0));
    assert_eq!((audit.opened, audit.balances, audit.settled), (300, 300, 0));
    assert_eq!(audit.reserved, 20);
    assert_eq!(audit.transactions.values().sum::<u64>(), 4, "{audit:?}");

    let client = coordinator.client();
    for (at, corruption) in CORRUPTIONS.iter().enumerate() {
        let index = format!("{prefix}{}", corruption.index);
        let was = client.get(&index, corruption.id).await.unwrap().unwrap();
        let was: Value = was.read().unwrap();
        let wrong = match corruption.change {
            Some(change) => {
                let mut wrong = was.clone();
                change(&mut wrong);
                Operation::index(&index, corruption.id, &wrong).unwrap()
            }
            None => Operation::delete(&index, corruption.id),
        };
        client.write(&wrong).await.unwrap();
        let audit = coordinator.audit().await.unwrap();
        judge(at, corruption, &audit);
        let back = Operation::index(&index, corruption.id, &was).unwrap();
        client.write(&back).await.unwrap();
    }
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
}

fn judge(at: usize, corruption: &Corruption, audit: &AuditReport) {
    let wrong = &audit.disagreements;
    assert_eq!(
        wrong.len(),
        corruption.found.len(),
        "{at}, in {}: {wrong:?}",
        corruption.id
    );
    for (document, transaction, is_it) in corruption.found {
        let found = wrong.iter().any(|one| {
            one.document.as_deref() == *document
                && one.transaction.as_deref() == *transaction
                && is_it(&one.fault)
        });
        assert!(found, "{at}, in {}: {wrong:?}", corruption.id);
    }
}

#[tokio::test]
async fn each_corruption_is_caught_and_named() {
    let (_fake, coordinator) = fake(1, Marks::Compared).await;
    each_is_caught(&coordinator, "").await;
}

#[tokio::test]
async fn each_corruption_is_caught_and_named_on_a_real_server() {
    let Some(coordinator) = coordinator("audited").await else {
        return;
    };
    each_is_caught(&coordinator, "audited-").await;
    ran::note("two-phase-audit");
}

#[tokio::test]
async fn audits_fail_on_unreadable_documents() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    opened(&coordinator, &["a", "b", "c"].map(|account| (account, 100))).await;
    left_behind(&coordinator, "done", "a", "b", Step::Finish).await;
    left_behind(&coordinator, "open", "a", "c", Step::Hold).await;
    fake.make_unreadable([("transactions", "open")]);
    let audit = coordinator.audit().await;
    assert!(matches!(audit, Err(Failure::Unavailable(_))), "{audit:?}");
    // The document is unreadable, so that its existence is unknown.
    fake.remove_without_trace("documents", "b");
    fake.make_unreadable([("documents", "b")]);
    let audit = coordinator.audit().await;
    assert!(matches!(audit, Err(Failure::Unavailable(_))), "{audit:?}");
    fake.make_unreadable([]);
    let audit = coordinator.audit().await.unwrap();
    let [missing] = &audit.disagreements[..] else {
        panic!("{audit:?}");
    };
    assert_eq!(missing.fault, Fault::Missing);
}

#[tokio::test]
async fn constantly_written_documents_are_reported_as_not_judged() {
    let (fake, prepared) = fake(1, Marks::Compared).await;
    opened(&prepared, &["cold", "hot"].map(|account| (account, 100))).await;
    let hot = r#"{"index":{"_index":"documents","_id":"hot"}}
{"balance":100,"opened":100,"holds":[],"fences":{}}
"#;
    let reads = Arc::new(AtomicUsize::new(0));
    let (reading, busy) = (Arc::clone(&reads), Arc::clone(&fake));
    let client = carried(move |request| {
        let (reads, fake) = (Arc::clone(&reading), Arc::clone(&busy));
        async move {
            let answer = fake.ask(&request.method, &request.path, &request.body);
            let answer = answer.await;
            if request.path.contains("documents/_mget") {
                reads.fetch_add(1, Ordering::Relaxed);
                fake.call("POST", "/_bulk", hot.as_bytes());
            }
            answer
        }
    });
    let coordinator = Coordinator::new(client, "documents", "transactions");
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert_eq!((audit.documents, audit.moving), (1, 1));
    assert_eq!(audit.not_judged, ["hot"]);
    assert_eq!(reads.load(Ordering::Relaxed), 16, "eight reads, each twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_report_nothing_during_transfers() {
    let Some(coordinator) = coordinator("audited-running").await else {
        return;
    };
    let coordinator = Arc::new(coordinator);
    let accounts: Vec<String> = (0..130).map(|at| format!("a{at:03}")).collect();
    for account in &accounts {
        coordinator.open(account, 100).await.unwrap();
    }
    let mut running = JoinSet::new();
    for who in 0..8 {
        let (coordinator, accounts) = (Arc::clone(&coordinator), accounts.clone());
        running.spawn(async move {
            for at in 0..15 {
                let from = &accounts[(who * 7 + at) % accounts.len()];
                let to = &accounts[(who * 11 + at * 3 + 1) % accounts.len()];
                if let Ok(transfer) = Transaction::transfer(&format!("t{who}-{at}"), from, to, 3) {
                    coordinator.run(&transfer).await.unwrap();
                }
            }
        });
    }
    let mut audits = 0;
    while !running.is_empty() {
        let audit = coordinator.audit().await.unwrap();
        assert!(audit.agrees(), "{audit:?}");
        assert_eq!(audit.documents + audit.moving, 130);
        assert_eq!(audit.balances, audit.opened + audit.settled);
        audits += 1;
        while let Some(ended) = running.try_join_next() {
            ended.unwrap();
        }
    }
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert_eq!((audit.documents, audit.balances), (130, 13_000));
    println!("{audits} audits meanwhile");
}
