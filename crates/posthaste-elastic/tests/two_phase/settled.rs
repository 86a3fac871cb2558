//! Callers that do not wait for the last step.

use std::time::Duration;

use posthaste_elastic::two_phase::{Failure, State, Transaction};
use posthaste_testkit::elastic::Fault;
use posthaste_testkit::eventually;

use super::fake::{Marks, fake};
use super::{balances, coordinator, opened, state};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn waiting_for_settlement_sees_every_effect() {
    let Some(coordinator) = coordinator("settled").await else {
        return;
    };
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let transfer = Transaction::transfer("t", "a", "b", 7).unwrap();
    coordinator.run_to_settled(&transfer).await.unwrap();
    let left = balances(&coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (3, 7));
    let finished = async || Ok(state(&coordinator, "t").await == Some(State::Finished));
    eventually(SOON, "it is finished", finished).await.unwrap();
    coordinator.run_to_settled(&transfer).await.unwrap();
    let larger = Transaction::transfer("u", "a", "b", 4).unwrap();
    let result = coordinator.run_to_settled(&larger).await;
    assert!(matches!(result, Err(Failure::RolledBack(_))), "{result:?}");
    assert_eq!(state(&coordinator, "u").await, Some(State::RolledBack));
}

#[tokio::test]
async fn recovery_repeats_a_lost_final_update() {
    let (fake, coordinator) = fake(7, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    // The first write of an index triggers a check of the index.
    opened(&coordinator, &[("c", 1), ("d", 0)]).await;
    let first = Transaction::transfer("first", "c", "d", 1).unwrap();
    coordinator.run(&first).await.unwrap();
    let before = fake.requests();
    // The first five requests read, begin, hold, commit and settle.
    fake.plan([None; 5].into_iter().chain([Some(Fault::LostBefore)]));
    let transfer = Transaction::transfer("t", "a", "b", 7).unwrap();
    coordinator.run_to_settled(&transfer).await.unwrap();
    let asked = async || Ok(fake.requests() == before + 6);
    eventually(SOON, "the last word is lost", asked)
        .await
        .unwrap();
    let left = balances(&coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (3, 7));
    assert_eq!(state(&coordinator, "t").await, Some(State::Committed));
    fake.advance_clock(Duration::from_secs(60));
    coordinator.client().refresh("transactions").await.unwrap();
    let recovered = coordinator.recover(Duration::from_secs(50)).await.unwrap();
    assert_eq!((recovered.finished, recovered.open.len()), (1, 0));
    assert_eq!(state(&coordinator, "t").await, Some(State::Finished));
    let left = balances(&coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (3, 7));
}
