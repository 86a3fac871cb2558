//! Transactions and documents whose pages exceed the limit of an answer.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste_elastic::Operation;
use posthaste_elastic::two_phase::{Coordinator, Effect, Execution, State, Step, Transaction};
use serde_json::{Map, json};

use super::coordinator;
use super::fake::{Marks, client, fake};

/// The limit of an answer, in bytes: three or four documents.
const LONGEST: usize = 20_000;
const MANY: usize = 12;

fn large(name: &str, document: &str) -> Transaction {
    let values = Map::from_iter([("text".to_owned(), "x".repeat(5_000).into())]);
    Transaction::new(name, vec![Effect::set(document, values)]).unwrap()
}

#[tokio::test]
async fn large_reads_are_split() {
    let (fake, prepared) = fake(1, Marks::Compared).await;
    let narrow = client(&fake).largest_answer(LONGEST);
    let coordinator = Coordinator::new(narrow, "documents", "transactions");
    let names: Vec<String> = (0..MANY).map(|at| format!("d{at:02}")).collect();
    for name in &names {
        coordinator.open(name, 0).await.unwrap();
        // One transaction has set the document, another is setting it.
        let done = large(&format!("done-{name}"), name);
        coordinator.run(&done).await.unwrap();
        let open = large(&format!("open-{name}"), name);
        let mut execution = Execution::for_new(1, 1);
        while {
            let step = execution.step();
            coordinator.run_step(&open, &mut execution).await;
            step != Step::Hold
        } {}
    }
    prepared.client().refresh("transactions").await.unwrap();

    let listed = coordinator.list(&[], 50).await.unwrap();
    assert_eq!(listed.len(), MANY);
    assert_eq!(coordinator.list(&[], 5).await.unwrap().len(), 5);
    let finished = coordinator.list(&[State::Finished], 50).await.unwrap();
    assert!(finished.iter().all(|one| one.record.is_ok()) && finished.len() == MANY);
    let stuck = coordinator.list_stuck(Duration::ZERO).await.unwrap();
    assert!(stuck.iter().all(|one| one.record.is_ok()) && stuck.len() == MANY);
    let documents: Vec<&str> = names.iter().map(String::as_str).collect();
    let views = coordinator.views(&documents).await.unwrap();
    assert!(views.iter().all(|one| {
        one.as_ref()
            .is_some_and(|one| one.data.contains_key("text"))
    }));
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert_eq!(audit.documents, MANY as u64);
    assert_eq!(audit.transactions.values().sum::<u64>(), 2 * MANY as u64);
    // A single document above the limit is an error, and is not skipped.
    let hopeless = client(&fake).largest_answer(4_000);
    let hopeless = Coordinator::new(hopeless, "documents", "transactions");
    for failed in [
        hopeless.audit().await.is_err(),
        hopeless.list(&[State::Finished], 5).await.is_err(),
        hopeless.list_stuck(Duration::ZERO).await.is_err(),
    ] {
        assert!(failed);
    }
    assert_eq!(fake.held_moments(), 0);

    let recovered = coordinator.recover(Duration::ZERO).await.unwrap();
    // Searches may still show a transaction that has just ended.
    assert!(
        recovered.finished >= MANY && recovered.open.is_empty(),
        "{recovered:?}"
    );
}

/// Transactions of the published protocol may lack times, by which pages are sorted.
#[tokio::test]
async fn lists_span_pages_even_with_missing_times() {
    let Some(coordinator) = coordinator("large").await else {
        return;
    };
    let index = "large-transactions";
    let record = |at: usize| {
        let mut record = json!({"transaction_state": "pending",
            "effects": [{"document": "a", "add": 1}],
            "modification_time": "2026-11-01T00:00:00Z", "next_attempt_at": "2026-11-01T00:00:\
                00Z"});
        // A third have their creation time, a third lack even the time of their last change.
        match at % 3 {
            0 => record["creation_time"] = json!("2026-11-01T00:00:00Z"),
            1 => drop(record.as_object_mut().unwrap().remove("modification_time")),
            _ => {}
        }
        Operation::index(index, &format!("t{at:03}"), &record).unwrap()
    };
    let all: Vec<Operation> = (0..390).map(record).collect();
    for written in coordinator.client().bulk(&all).await.unwrap() {
        written.unwrap();
    }
    coordinator.client().refresh(index).await.unwrap();
    let listed = coordinator.list(&[], 1_000).await.unwrap();
    let names: BTreeSet<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((listed.len(), names.len()), (390, 390));
    let stuck = coordinator.list_stuck(Duration::ZERO).await.unwrap();
    assert_eq!(stuck.len(), 260);
}
