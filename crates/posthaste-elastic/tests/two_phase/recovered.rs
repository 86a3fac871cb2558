//! Recovery, by several processes at once.

use std::time::Duration;

use posthaste_elastic::Operation;
use posthaste_elastic::two_phase::{
    Blocker, Coordinator, Effect, Execution, Failure, Obstacle, Record, State, Step, Transaction,
};
use posthaste_testkit::elastic::FakeElastic;

use super::fake::{Marks, fake};
use super::{balances, coordinator, opened, state};

const AT_ONCE: Duration = Duration::ZERO;

/// Runs a transfer up to this step, and abandons it there.
async fn left_behind(coordinator: &Coordinator, transfer: &Transaction, last: Step) {
    let mut execution = Execution::for_new(2, 1);
    loop {
        let step = execution.step();
        coordinator.run_step(transfer, &mut execution).await;
        if step == last {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_recoveries_complete_all_abandoned_transactions() {
    let Some(coordinator) = coordinator("recovered").await else {
        return;
    };
    opened(&coordinator, &[("a", 1000), ("b", 0)]).await;
    let last = [Step::Begin, Step::Hold, Step::Commit, Step::Settle];
    let count = 120;
    for at in 0..count {
        let transfer = Transaction::transfer(&format!("t{at}"), "a", "b", 1).unwrap();
        match at % 5 {
            4 => coordinator.create_transaction(&transfer).await.unwrap(),
            at => left_behind(&coordinator, &transfer, last[at]).await,
        }
    }
    // The first to be due: it cannot end while its document is missing.
    let client = coordinator.client();
    opened(&coordinator, &[("gone", 5)]).await;
    let lost = Transaction::transfer("lost", "gone", "b", 5).unwrap();
    left_behind(&coordinator, &lost, Step::Commit).await;
    let gone = coordinator.document("gone").await.unwrap().unwrap();
    let documents = "recovered-documents";
    client
        .write(&posthaste_elastic::Operation::delete(documents, "gone"))
        .await
        .unwrap();
    client.refresh("recovered-transactions").await.unwrap();

    let (one, other) = tokio::join!(coordinator.recover(AT_ONCE), coordinator.recover(AT_ONCE));
    let (one, other) = (one.unwrap(), other.unwrap());
    println!("{one:?} {other:?}");
    let open = one.open.iter().chain(&other.open);
    for (id, failure) in open {
        assert_eq!(id, "lost", "{failure}");
        assert!(failure.may_have_moved());
    }
    for at in 0..count {
        let ended = state(&coordinator, &format!("t{at}")).await;
        assert_eq!(ended, Some(State::Finished), "t{at}");
    }
    assert_eq!(state(&coordinator, "lost").await, Some(State::Committed));
    client.refresh("recovered-transactions").await.unwrap();
    let stuck = coordinator.list_stuck(Duration::ZERO).await.unwrap();
    let names: Vec<_> = stuck.iter().map(|stuck| stuck.id.as_str()).collect();
    assert_eq!(names, ["lost"]);
    let record = stuck[0].record.as_ref().unwrap();
    assert!(record.attempts >= Some(1), "{record:?}");
    assert_eq!(stuck[0].blockers, [Blocker::Missing("gone".into())]);
    let soon = coordinator.recover(AT_ONCE).await.unwrap();
    assert_eq!((soon.finished, soon.open.len()), (0, 0), "it was put off");

    // An operator restores the document.
    let back = posthaste_elastic::Operation::index(documents, "gone", &gone).unwrap();
    client.write(&back).await.unwrap();
    coordinator.resume("lost").await.unwrap();
    let left = balances(&coordinator, &["a", "b", "gone"]).await;
    assert_eq!(
        left.into_values().collect::<Vec<_>>(),
        [1000 - count as i64, count as i64 + 5, 0]
    );
    assert!(matches!(
        coordinator.roll_back("lost").await,
        Err(Failure::Committed)
    ));
}

#[tokio::test]
async fn recovery_and_lists_refresh_indexes_without_auto_refresh() {
    let (_fake, coordinator) = fake(13, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let transfer = Transaction::transfer("t", "a", "b", 1).unwrap();
    coordinator.create_transaction(&transfer).await.unwrap();
    let listed = coordinator.list(&[], 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(coordinator.list_stuck(AT_ONCE).await.unwrap().len(), 1);
    let recovered = coordinator.recover(AT_ONCE).await.unwrap();
    assert_eq!(recovered.finished, 1, "{recovered:?}");
    // Ended transactions are not found again.
    let again = coordinator.recover(AT_ONCE).await.unwrap();
    assert_eq!(again.finished, 0, "{again:?}");
    let open = coordinator.list(&[], 10).await.unwrap();
    assert!(open.is_empty(), "{open:?}");
    let finished = coordinator.list(&[State::Finished], 10).await.unwrap();
    let result = serde_json::to_value(&finished).unwrap();
    assert_eq!(result[0]["transaction_state"], "finished", "{result}");
    assert_eq!(result[0]["id"], "t", "{result}");
}

/// Returns the stored transaction, even if it breaks a rule.
fn record(fake: &FakeElastic, id: &str) -> Record {
    let held = fake.document("transactions", id).unwrap();
    serde_json::from_value(held.source.unwrap()).unwrap()
}

async fn refreshed(coordinator: &Coordinator) {
    coordinator.client().refresh("transactions").await.unwrap();
}

#[tokio::test]
async fn a_page_of_unreadable_transactions_is_reported_and_blocks_nobody() {
    const LOST: usize = 150;
    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3_600);
    let (fake, coordinator) = fake(11, Marks::Compared).await;
    opened(&coordinator, &[("far", 1_000), ("a", 10), ("b", 0)]).await;
    for at in 0..LOST {
        let transfer = Transaction::transfer(&format!("lost{at}"), "far", "b", 1).unwrap();
        left_behind(&coordinator, &transfer, Step::Begin).await;
    }
    fake.advance_clock(Duration::from_secs(5));
    let good = Transaction::transfer("good", "a", "b", 1).unwrap();
    coordinator.create_transaction(&good).await.unwrap();
    fake.make_unreadable([("documents", "far")]);
    fake.advance_clock(2 * MINUTE);
    refreshed(&coordinator).await;

    let begun = std::time::Instant::now();
    let recovered = coordinator.recover(MINUTE).await.unwrap();
    println!(
        "a pass over {LOST} that cannot be ended takes {:?}",
        begun.elapsed()
    );
    assert_eq!((recovered.finished, recovered.open.len()), (1, LOST));
    assert_eq!(state(&coordinator, "good").await, Some(State::Finished));
    // Only the next attempt of each could be postponed.
    for at in 0..LOST {
        assert_eq!(record(&fake, &format!("lost{at}")).attempts, Some(1));
    }
    refreshed(&coordinator).await;
    let next = coordinator.recover(MINUTE).await.unwrap();
    assert_eq!((next.finished, next.open.len()), (0, 0), "they are put off");

    // Attempts do not count as changes of state.
    assert_eq!(coordinator.list_stuck(HOUR).await.unwrap().len(), 0);
    fake.advance_clock(HOUR - MINUTE);
    let recovered = coordinator.recover(MINUTE).await.unwrap();
    assert_eq!(recovered.open.len(), LOST);
    refreshed(&coordinator).await;
    let stuck = coordinator.list_stuck(HOUR).await.unwrap();
    assert_eq!(stuck.len(), LOST);
    for one in stuck {
        assert_eq!(one.blockers, [Blocker::Unreadable("far".into())]);
        assert_eq!(one.record.unwrap().attempts, Some(2));
    }
    fake.make_unreadable([]);
    fake.advance_clock(HOUR);
    let recovered = coordinator.recover(MINUTE).await.unwrap();
    assert_eq!((recovered.finished, recovered.open.len()), (LOST, 0));
    let left = balances(&coordinator, &["far", "a", "b"]).await;
    assert_eq!((left["far"], left["a"], left["b"]), (850, 9, 151));
}

#[tokio::test]
async fn blockers_are_rules_refusals_or_unreadable_documents() {
    let (fake, coordinator) = fake(12, Marks::Compared).await;
    opened(&coordinator, &[("far", 10), ("poor", 1), ("b", 0)]).await;
    let far = Transaction::transfer("far", "far", "b", 1).unwrap();
    let poor = Transaction::transfer("poor", "poor", "b", 2).unwrap();
    for transfer in [&far, &poor] {
        coordinator.create_transaction(transfer).await.unwrap();
    }
    // Another program writes a transaction that takes from a document twice.
    let twice = Record {
        effects: vec![Effect::add("b", -1), Effect::add("b", -1)],
        ..record(&fake, "far")
    };
    let twice = Operation::index("transactions", "twice", &twice).unwrap();
    coordinator.client().write(&twice).await.unwrap();
    fake.make_unreadable([("documents", "far")]);
    fake.advance_clock(Duration::from_secs(120));
    refreshed(&coordinator).await;
    let stuck = coordinator
        .list_stuck(Duration::from_secs(60))
        .await
        .unwrap();
    let named = |id: &str| {
        let one = stuck.iter().find(|one| one.id == id).unwrap();
        (one.blockers.clone(), one.blockers[0].to_string())
    };
    let (blockers, text) = named("far");
    assert_eq!(blockers, [Blocker::Unreadable("far".into())]);
    assert_eq!(text, "the document far cannot be read");
    let (blockers, text) = named("poor");
    let refuses = Blocker::Refused("poor".into(), Obstacle::Insufficient);
    assert_eq!(blockers, [refuses]);
    assert!(text.contains("poor has less available"), "{text}");
    let (blockers, text) = named("twice");
    assert!(matches!(blockers[..], [Blocker::Rule(_)]), "{blockers:?}");
    assert!(text.contains("one effect for each document"), "{text}");

    // A transaction that breaks a rule is not run, and does not come first each time.
    let recovered = coordinator.recover(Duration::from_secs(60)).await.unwrap();
    assert_eq!((recovered.rolled_back, recovered.open.len()), (1, 2));
    for id in ["far", "twice"] {
        assert_eq!(record(&fake, id).attempts, Some(1), "{id}");
    }
    assert_eq!(record(&fake, "twice").transaction_state, State::Created);
}
