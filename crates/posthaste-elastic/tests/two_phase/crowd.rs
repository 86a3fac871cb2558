//! Many concurrent executors.

use std::sync::Arc;
use std::time::Duration;

use posthaste_elastic::two_phase::{
    Execution, Failure, MAX_HOLDS, Reason, State, Step, Transaction,
};
use posthaste_testkit::eventually;
use tokio::task::JoinSet;

use super::fake::{Marks, fake};
use super::{balances, coordinator, document, opened, state};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_account_is_never_overdrawn() {
    let Some(coordinator) = coordinator("hot").await else {
        return;
    };
    let coordinator = Arc::new(coordinator);
    opened(&coordinator, &[("hot", 100), ("a", 0), ("b", 0), ("c", 0)]).await;
    let mut running = JoinSet::new();
    for at in 0..120 {
        let coordinator = Arc::clone(&coordinator);
        running.spawn(async move {
            let to = ["a", "b", "c"][at % 3];
            let transfer = Transaction::transfer(&format!("t{at}"), "hot", to, 1).unwrap();
            match coordinator.run(&transfer).await {
                Ok(()) => 1,
                Err(Failure::RolledBack(Some(Reason::Insufficient))) => 0,
                Err(other) => panic!("t{at}: {other}"),
            }
        });
    }
    let mut paid = 0;
    while let Some(one) = running.join_next().await {
        paid += one.unwrap();
    }
    let left = balances(&coordinator, &["hot", "a", "b", "c"]).await;
    assert_eq!(left["hot"], 100 - paid);
    assert_eq!(left.values().sum::<i64>(), 100);
    assert_eq!(
        paid, 100,
        "the last one may be refused only while others held what they did not take"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_run_by_many_executors_is_applied_once() {
    let Some(coordinator) = coordinator("same").await else {
        return;
    };
    let coordinator = Arc::new(coordinator);
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    for round in 0..5 {
        let mut running = JoinSet::new();
        for who in 0..6 {
            let coordinator = Arc::clone(&coordinator);
            running.spawn(async move {
                let name = format!("t{round}");
                let transfer = Transaction::transfer(&name, "a", "b", 1).unwrap();
                match who {
                    5 => coordinator.roll_back(&name).await,
                    _ => coordinator.run(&transfer).await,
                }
            });
        }
        let mut result = Vec::new();
        while let Some(one) = running.join_next().await {
            result.push(one.unwrap());
        }
        let _ = coordinator.resume(&format!("t{round}")).await;
        let ended = state(&coordinator, &format!("t{round}")).await.unwrap();
        assert!(ended.is_final());
        for one in result {
            match one {
                // An executor rolled it back, or found it decided.
                Ok(()) | Err(Failure::Open(_) | Failure::Ambiguous(_) | Failure::Absent(_)) => {}
                Err(Failure::RolledBack(_)) => assert_eq!(ended, State::RolledBack),
                Err(Failure::Committed) => assert_eq!(ended, State::Finished),
                Err(other) => panic!("{other}"),
            }
        }
    }
    let (a, b) = (
        document(&coordinator, "a").await,
        document(&coordinator, "b").await,
    );
    assert_eq!(
        (a.holds.len(), b.holds.len(), a.balance + b.balance),
        (0, 0, 10)
    );
}

#[tokio::test]
async fn transactions_wait_for_a_full_document() {
    let (fake, coordinator) = fake(5, Marks::Compared).await;
    let coordinator = Arc::new(coordinator);
    opened(&coordinator, &[("hot", 1_000), ("b", 0)]).await;
    for at in 0..MAX_HOLDS {
        let transfer = Transaction::transfer(&format!("t{at}"), "hot", "b", 1).unwrap();
        let mut execution = Execution::for_new(2, 0);
        while execution.step() != Step::Commit {
            coordinator.run_step(&transfer, &mut execution).await;
        }
    }
    let next = tokio::spawn({
        let coordinator = Arc::clone(&coordinator);
        let next = Transaction::transfer("next", "hot", "b", 1).unwrap();
        async move { coordinator.run(&next).await }
    });
    // Waits for its eighth attempt, at five requests each: read, check, touch, hold, and find the
    // reason; the first attempt does not read.
    let before = fake.requests();
    let tried = async || Ok(fake.requests() > before + 38);
    eventually(Duration::from_secs(60), "it tries again and again", tried)
        .await
        .unwrap();
    coordinator.resume("t0").await.unwrap();
    next.await.unwrap().unwrap();
    assert_eq!(state(&coordinator, "next").await, Some(State::Finished));
}

#[tokio::test]
async fn four_hundred_concurrent_transfers_on_one_account_all_succeed() {
    let (fake, coordinator) = fake(6, Marks::Compared).await;
    let coordinator = Arc::new(coordinator);
    opened(&coordinator, &[("hot", 400), ("b", 0)]).await;
    let mut running = JoinSet::new();
    for at in 0..400 {
        let coordinator = Arc::clone(&coordinator);
        let transfer = Transaction::transfer(&format!("t{at}"), "hot", "b", 1).unwrap();
        running.spawn(async move { coordinator.run(&transfer).await });
    }
    while let Some(result) = running.join_next().await {
        match result.unwrap() {
            // A slow machine leaves some to recovery.
            Ok(()) | Err(Failure::Open(_) | Failure::Ambiguous(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    fake.advance_clock(Duration::from_secs(3_601));
    coordinator.client().refresh("transactions").await.unwrap();
    coordinator.recover(Duration::ZERO).await.unwrap();
    let left = balances(&coordinator, &["hot", "b"]).await;
    assert_eq!((left["hot"], left["b"]), (0, 400));
}
