//! Transactions that ended long ago are deleted, and their amounts stay counted.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use posthaste_elastic::Operation;
use posthaste_elastic::two_phase::{
    Coordinator, Document, Effect, Failure, Pruned, Record, Transaction,
};
use posthaste_testkit::elastic::FakeElastic;
use serde_json::{Map, Value, json};

use super::fake::{Marks, carried, fake};
use super::{balances, coordinator, document, opened};

const HOUR: Duration = Duration::from_secs(3_600);

/// Changes the end of a transaction, which has just ended by the server's clock, to long ago.
async fn ended_before(coordinator: &Coordinator, transactions: &str, id: &str, ago: Duration) {
    let record = coordinator.get(id).await.unwrap().unwrap();
    let at: Timestamp = record
        .modification_time
        .as_deref()
        .unwrap()
        .parse()
        .unwrap();
    let at = at - ago;
    let record = Record {
        modification_time: Some(at.to_string()),
        ..record
    };
    let old = Operation::index(transactions, id, &record).unwrap();
    coordinator.client().write(&old).await.unwrap();
}

async fn agrees(coordinator: &Coordinator) {
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
}

async fn pruning_keeps_audits_working(coordinator: &Coordinator, transactions: &str) {
    opened(coordinator, &[("a", 100), ("b", 0), ("c", 0)]).await;
    let transfer = |id: &str, to: &str, amount| Transaction::transfer(id, "a", to, amount).unwrap();
    for (id, to, amount) in [("t1", "b", 10), ("t2", "c", 20), ("young", "b", 5)] {
        coordinator.run(&transfer(id, to, amount)).await.unwrap();
    }
    let poor = coordinator.run(&transfer("poor", "b", 1_000)).await;
    assert!(matches!(poor, Err(Failure::RolledBack(_))), "{poor:?}");
    coordinator
        .create_transaction(&transfer("open", "b", 1))
        .await
        .unwrap();
    for id in ["t1", "t2", "poor", "open"] {
        ended_before(coordinator, transactions, id, 3 * HOUR).await;
    }
    let soon = coordinator.prune(HOUR - Duration::from_secs(1)).await;
    assert!(matches!(soon, Err(Failure::Refused(_))), "{soon:?}");
    let pruned = coordinator.prune(2 * HOUR).await.unwrap();
    let three = Pruned {
        forgotten: 3,
        kept: 0,
    };
    assert_eq!(pruned, three);
    for (id, is_there) in [
        ("t1", false),
        ("poor", false),
        ("young", true),
        ("open", true),
    ] {
        let record = coordinator.get(id).await.unwrap();
        assert_eq!(record.is_some(), is_there, "{id}");
    }
    let past =
        |document: &posthaste_elastic::two_phase::Document| document.past.map(|past| past.add);
    assert_eq!(past(&document(coordinator, "a").await), Some(-30));
    assert_eq!(past(&document(coordinator, "c").await), Some(20));
    agrees(coordinator).await;
    // Again, with transactions that became old since.
    ended_before(coordinator, transactions, "young", 2 * HOUR).await;
    let pruned = coordinator.prune(HOUR).await.unwrap();
    assert_eq!((pruned.forgotten, pruned.kept), (1, 0));
    assert_eq!(past(&document(coordinator, "a").await), Some(-35));
    coordinator.resume("open").await.unwrap();
    agrees(coordinator).await;
    let left = balances(coordinator, &["a", "b", "c"]).await;
    assert_eq!((left["a"], left["b"], left["c"]), (64, 16, 20));
    // A balance changed by hand is still found.
    let mut wrong = document(coordinator, "c").await;
    wrong.balance += 1;
    let documents = transactions.replace("transactions", "documents");
    let wrong = Operation::index(&documents, "c", &wrong).unwrap();
    coordinator.client().write(&wrong).await.unwrap();
    assert!(!coordinator.audit().await.unwrap().agrees());
}

#[tokio::test]
async fn pruning_does_not_change_audits() {
    let (_fake, coordinator) = fake(21, Marks::Compared).await;
    pruning_keeps_audits_working(&coordinator, "transactions").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_does_not_change_audits_on_a_real_server() {
    let Some(coordinator) = coordinator("pruned").await else {
        return;
    };
    pruning_keeps_audits_working(&coordinator, "pruned-transactions").await;
}

#[tokio::test]
async fn transactions_with_holds_or_missing_documents_are_kept() {
    let (fake, coordinator) = fake(22, Marks::Compared).await;
    opened(&coordinator, &[("a", 100), ("b", 0), ("gone", 0)]).await;
    let by = Map::from_iter([("by".to_owned(), json!("t"))]);
    let set = Transaction::new("set", vec![Effect::set("b", by)]).unwrap();
    coordinator.run(&set).await.unwrap();
    let lost = Transaction::transfer("lost", "a", "gone", 1).unwrap();
    coordinator.run(&lost).await.unwrap();
    let held = Transaction::transfer("held", "a", "b", 2).unwrap();
    coordinator.run(&held).await.unwrap();
    // Another program restores a hold, and deletes a document.
    let mut again = document(&coordinator, "b").await;
    let id = held.id();
    let effect = Effect::add("b", 2);
    again.hold(id, &effect, again.fence(id)).unwrap();
    let again = Operation::index("documents", "b", &again).unwrap();
    coordinator.client().write(&again).await.unwrap();
    fake.remove_without_trace("documents", "gone");
    fake.advance_clock(2 * HOUR);
    let pruned = coordinator.prune(HOUR).await.unwrap();
    assert_eq!((pruned.forgotten, pruned.kept), (1, 2), "{pruned:?}");
    assert!(coordinator.get("set").await.unwrap().is_none());
    for id in ["lost", "held"] {
        assert!(coordinator.get(id).await.unwrap().is_some(), "{id}");
    }
}

async fn write(coordinator: &Coordinator, id: &str, document: &Document) {
    let write = Operation::index("documents", id, document).unwrap();
    coordinator.client().write(&write).await.unwrap();
}

/// Returns the document as it was before this transaction was settled on it.
fn unsettled(document: &Document, transaction: &Transaction, effect: usize) -> Document {
    let mut before = document.clone();
    let effect = &transaction.effects()[effect];
    before.balance -= effect.add;
    let seen = before.fence(transaction.id());
    before.hold(transaction.id(), effect, seen).unwrap();
    before
}

/// Returns a coordinator that reads this document from a stale copy.
fn with_stale_copy(fake: &Arc<FakeElastic>, id: &'static str, document: &Document) -> Coordinator {
    let (fake, old) = (Arc::clone(fake), serde_json::to_value(document).unwrap());
    let client = carried(move |request| {
        let (fake, old) = (Arc::clone(&fake), old.clone());
        async move {
            let answer = fake.ask(&request.method, &request.path, &request.body);
            let (status, body) = answer.await?;
            if !request.path.contains("documents/_mget") {
                return Some((status, body));
            }
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            for found in body["docs"].as_array_mut().unwrap() {
                if found["_id"] == id {
                    found["_source"] = old.clone();
                }
            }
            Some((status, body.to_string().into_bytes()))
        }
    });
    Coordinator::new(client, "documents", "transactions")
}

#[tokio::test]
async fn stale_copies_of_holds_are_counted() {
    let (fake, coordinator) = fake(23, Marks::Compared).await;
    opened(&coordinator, &[("a", 100), ("b", 0)]).await;
    let transfer = Transaction::transfer("t", "a", "b", 3).unwrap();
    coordinator.run(&transfer).await.unwrap();
    let old = unsettled(&document(&coordinator, "b").await, &transfer, 1);
    fake.advance_clock(2 * HOUR);
    let pruned = with_stale_copy(&fake, "b", &old).prune(HOUR).await.unwrap();
    assert_eq!((pruned.forgotten, pruned.kept), (0, 1), "{pruned:?}");
    agrees(&coordinator).await;
    let pruned = coordinator.prune(HOUR).await.unwrap();
    assert_eq!((pruned.forgotten, pruned.kept), (1, 0), "{pruned:?}");
    agrees(&coordinator).await;
}

#[tokio::test]
async fn holds_of_counted_history_are_judged_correctly() {
    let (fake, coordinator) = fake(24, Marks::Compared).await;
    opened(&coordinator, &[("a", 100), ("b", 0)]).await;
    for (id, amount) in [("held", 3), ("other", 4)] {
        let transfer = Transaction::transfer(id, "a", "b", amount).unwrap();
        coordinator.run(&transfer).await.unwrap();
    }
    let held = Transaction::transfer("held", "a", "b", 3).unwrap();
    let again = unsettled(&document(&coordinator, "b").await, &held, 1);
    write(&coordinator, "b", &again).await;
    fake.advance_clock(2 * HOUR);
    let before = coordinator.audit().await.unwrap();
    assert_eq!(before.disagreements.len(), 1, "{before:?}");
    let pruned = coordinator.prune(HOUR).await.unwrap();
    assert_eq!((pruned.forgotten, pruned.kept), (1, 1), "{pruned:?}");
    let after = coordinator.audit().await.unwrap();
    assert_eq!(after.disagreements, before.disagreements);
    assert_eq!(after.settled, before.settled);
    let mut settled = document(&coordinator, "b").await;
    let mark = settled.fence(held.id());
    settled.settle(held.id(), mark);
    write(&coordinator, "b", &settled).await;
    agrees(&coordinator).await;
}
