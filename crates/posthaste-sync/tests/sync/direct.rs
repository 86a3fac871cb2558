//! Direct indexing: bounded, silent, and harmless when late.

use std::time::{Duration, Instant};

use posthaste_sync::{Direct, DirectCounts, Index, Mark, Postgres};
use posthaste_testkit::eventually;

use super::setup;
use super::world::{Request, World};
use crate::support::{SOON, all_done};

/// Executes the oldest request in flight.
fn deliver(world: &World) {
    let mut inner = world.inner();
    if let Request::Write(writes, answer) = inner.in_transit.remove(0) {
        let answers = writes.iter().map(|write| inner.write(write)).collect();
        if let Some(answer) = answer {
            let _ = answer.send(Ok(answers));
        }
    }
}

async fn arrived(world: &World, requests: usize) {
    let there = async || Ok(world.inner().in_transit.len() == requests);
    eventually(SOON, "it is in flight", there).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unresponsive_index_costs_at_most_the_budget() {
    let world = World::default();
    let direct = Direct::to(world.clone()).budget(Duration::from_millis(50));
    let started = Instant::now();
    direct.put("1", 5, "{}").await;
    let took = started.elapsed();
    // A generous limit, because the machine may be busy. Without a budget it would wait forever.
    assert!(
        took >= Duration::from_millis(50) && took < Duration::from_secs(20),
        "{took:?}"
    );
    assert_eq!(direct.counts().late, 1);
    // The sync writes a newer version before the late write arrives.
    let newer = posthaste_sync::Write {
        id: "1".into(),
        mark: Mark::new(6),
        token: 1,
        document: Some("{\"new\": 1}".into()),
    };
    world.inner().write(&newer);
    deliver(&world);
    assert_eq!(world.inner().index["1"].mark, Mark::new(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_writes_are_bounded_while_the_index_is_down() {
    let world = World::default();
    let direct = Direct::to(world.clone())
        .budget(Duration::from_millis(1))
        .clone();
    // Writes whose caller no longer waits end after a while; until then they occupy their slots.
    let patient = direct.clone().budget(Duration::from_secs(60));
    let waiting: Vec<_> = (0..64)
        .map(|n| {
            let patient = patient.clone();
            tokio::spawn(async move { patient.put(n.to_string(), 1, "{}").await })
        })
        .collect();
    arrived(&world, 64).await;
    direct.put("one more", 1, "{}").await;
    assert_eq!(world.inner().in_transit.len(), 64);
    assert_eq!(
        direct.counts(),
        DirectCounts {
            skipped: 1,
            ..DirectCounts::default()
        }
    );
    for _ in 0..64 {
        deliver(&world);
    }
    for one in waiting {
        one.await.unwrap();
    }
    assert_eq!(
        direct.counts(),
        DirectCounts {
            skipped: 1,
            taken: 64,
            ..DirectCounts::default()
        }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn direct_write_outcomes_are_counted_and_never_raised() {
    let world = World::default();
    let direct = Direct::to(world.clone()).budget(Duration::from_secs(60));
    let put = async |version: i64, document: &str| {
        tokio::join!(direct.put("1", version, document), async {
            arrived(&world, 1).await;
            deliver(&world);
        });
    };
    put(5, "{}").await;
    put(4, "{}").await;
    put(6, "{\"text\": {\"unfit\": 10}}").await;
    tokio::join!(direct.delete("1", 7), async {
        arrived(&world, 1).await;
        deliver(&world);
    });
    tokio::join!(direct.put("1", 8, "{}"), async {
        arrived(&world, 1).await;
        world.inner().in_transit.clear();
    });
    let counts = DirectCounts {
        taken: 2,
        older: 1,
        refused: 1,
        failed: 1,
        ..DirectCounts::default()
    };
    assert_eq!(direct.counts(), counts);
    assert_eq!(world.inner().index["1"].document, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_budget_is_300_ms() {
    let world = World::default();
    let direct = Direct::to(world.clone());
    let started = Instant::now();
    direct.put("1", 5, "{}").await;
    let took = started.elapsed();
    // A generous limit again, far below any other plausible budget.
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_secs(20),
        "{took:?}"
    );
    assert_eq!(direct.counts().late, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_index_is_left_to_its_sync() {
    let setup = setup().await;
    let index = Postgres::new(setup.db.pool(2).unwrap(), "note");
    let direct = Direct::to(index.clone()).budget(SOON);
    let document = r#"{"body": "whale"}"#;
    direct.put("1", 1_000, document).await;
    assert_eq!((direct.counts().failed, direct.counts().taken), (1, 0));
    assert!(
        index.is_empty().await.unwrap(),
        "else it would not be filled"
    );
    setup.run("INSERT INTO note VALUES (1, 'fox')").await;
    let (worker, _) = setup.start(setup.sync()).await;
    all_done(&setup.client).await;
    direct.put("1", 1_000, document).await;
    assert_eq!((direct.counts().failed, direct.counts().taken), (1, 1));
    assert_eq!(setup.found("whale").await, ["1"]);
    worker.stop().await.unwrap();
}
