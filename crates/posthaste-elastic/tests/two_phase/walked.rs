//! Scans of all transactions skip none, on either product, and leave no point in time open.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use posthaste_elastic::Operation;
use posthaste_elastic::two_phase::{Coordinator, State, Transaction};
use posthaste_testkit::elastic::{FakeElastic, Fault};
use serde_json::{Value, json};

use super::fake::{Marks, fake};
use super::opened;

const MANY: usize = 250;

/// Creates more transactions than two pages hold, none of them run, all at the same time.
async fn created(coordinator: &Coordinator) {
    opened(coordinator, &[("a", 1_000), ("b", 0)]).await;
    let client = coordinator.client();
    for at in 0..MANY {
        let id = format!("t{at}");
        let transfer = Transaction::transfer(&id, "a", "b", 1).unwrap();
        coordinator.create_transaction(&transfer).await.unwrap();
        let record = client.get("transactions", &id).await.unwrap().unwrap();
        let mut record: Value = record.read().unwrap();
        for time in ["creation_time", "modification_time", "next_attempt_at"] {
            record[time] = json!("2026-01-01T00:00:00Z");
        }
        let of_one_moment = Operation::index("transactions", &id, &record).unwrap();
        client.write(&of_one_moment).await.unwrap();
    }
    client.refresh("transactions").await.unwrap();
}

async fn walks(fake: &FakeElastic, coordinator: &Coordinator) {
    created(coordinator).await;
    let listed = coordinator.list(&[], 120).await.unwrap();
    let stuck = coordinator.list_stuck(Duration::ZERO).await.unwrap();
    let listed: BTreeSet<_> = listed.into_iter().map(|one| one.id).collect();
    let stuck: BTreeSet<_> = stuck.into_iter().map(|one| one.id).collect();
    assert_eq!((listed.len(), stuck.len()), (120, MANY));
    let begun = coordinator.recover_while(Duration::ZERO, || false).await;
    assert_eq!(begun.unwrap().finished, 0);
    assert_eq!(fake.held_moments(), 0, "of walks that ended early");
    // The search after the opening of its point in time fails.
    let searched = [None, Some(Fault::UnavailableBefore)];
    fake.plan(searched);
    assert!(coordinator.recover(Duration::ZERO).await.is_err());
    fake.plan(searched);
    assert!(coordinator.list(&[], 5).await.is_err());
    assert_eq!(fake.held_moments(), 0, "of walks that failed");

    let recovered = coordinator.recover(Duration::ZERO).await.unwrap();
    assert_eq!(recovered.finished, MANY);
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert_eq!(
        audit.transactions[&State::Finished.to_string()],
        MANY as u64
    );
    assert_eq!(fake.held_moments(), 0);
}

#[tokio::test]
async fn an_interrupted_pass_reports_progress_and_keeps_the_rest_due() {
    let (fake, coordinator) = fake(23, Marks::Compared).await;
    created(&coordinator).await;
    let asked = Cell::new(0);
    let lost_on_the_way = || {
        asked.set(asked.get() + 1);
        // In the middle of the first page.
        if asked.get() == 50 {
            fake.fail_over();
        }
        true
    };
    let pass = coordinator.recover_while(Duration::ZERO, lost_on_the_way);
    assert_eq!(pass.await.unwrap().finished, 100);
    coordinator.client().refresh("transactions").await.unwrap();
    let rest = coordinator.recover(Duration::ZERO).await.unwrap();
    assert_eq!(rest.finished, MANY - 100);
}

#[tokio::test]
async fn opensearch_is_walked_by_id_without_leaking_contexts() {
    let (fake, coordinator) = fake(21, Marks::Compared).await;
    walks(&fake, &coordinator).await;
}

#[tokio::test]
async fn elasticsearch_without_id_sorting_is_walked_by_shard_order() {
    let (fake, coordinator) = fake(22, Marks::Compared).await;
    fake.pose_as_elasticsearch();
    let by_id = br#"{"sort": [{"_id": "asc"}]}"#;
    let refused = fake.call("POST", "/transactions/_search", by_id).unwrap();
    assert_eq!(refused.0, 400);
    walks(&fake, &coordinator).await;
}
