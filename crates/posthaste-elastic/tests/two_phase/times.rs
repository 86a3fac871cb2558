//! The time of the next attempt, on the server and on the fake: recovery relies on it.

use std::time::Duration;

use jiff::Timestamp;
use posthaste_elastic::Operation;
use posthaste_elastic::two_phase::{
    Coordinator, Effect, Event, Record, Request, Response, State, Transaction,
};

use super::fake::{Marks, fake};
use super::{coordinator, opened};

/// The most seconds that a busy machine takes between two requests.
const NEAR: f64 = 20.0;

/// Returns the seconds until a transaction is due, by the server's clock.
async fn due_in(coordinator: &Coordinator, id: &str, step: u32) -> Option<f64> {
    let now = Transaction::new(&format!("now-{step}"), vec![Effect::add("a", 1)]).unwrap();
    coordinator.create_transaction(&now).await.unwrap();
    let now = coordinator.get(now.id().as_str()).await.unwrap().unwrap();
    let now: Timestamp = now.creation_time.unwrap().parse().unwrap();
    let due = coordinator
        .get(id)
        .await
        .unwrap()
        .unwrap()
        .next_attempt_at?;
    let due: Timestamp = due.parse().unwrap();
    Some(due.duration_since(now).as_secs_f64())
}

async fn attempts_postpone_the_next(coordinator: &Coordinator, transactions: &str) {
    opened(coordinator, &[("a", 0)]).await;
    let transaction = Transaction::new("t", vec![Effect::add("a", 1)]).unwrap();
    coordinator.create_transaction(&transaction).await.unwrap();
    let ask = async |request| {
        let (answers, error) = coordinator
            .send_requests(&transaction, &[request], None)
            .await;
        assert_eq!(answers, [Response::Acknowledged], "{error:?}");
    };
    let near = |due: Option<f64>, expected: f64| {
        let due = due.unwrap();
        assert!(
            (expected - NEAR..=expected).contains(&due),
            "{due} is not {expected}"
        );
    };
    near(due_in(coordinator, "t", 0).await, 0.0);
    ask(Request::Advance(State::Created, Event::Begun)).await;
    // Work on a transaction delays other executors, which does not count as an attempt.
    for again in 1..=5 {
        ask(Request::Touch(State::Pending)).await;
        near(due_in(coordinator, "t", again).await, 2.0);
    }
    let record = coordinator.get("t").await.unwrap().unwrap();
    assert_eq!(record.attempts, None);
    ask(Request::Advance(State::Pending, Event::Abandoned)).await;
    near(due_in(coordinator, "t", 6).await, 0.0);
    ask(Request::Advance(State::Terminating, Event::Undone)).await;
    assert_eq!(
        due_in(coordinator, "t", 7).await,
        None,
        "it is no longer polled"
    );
    let before = [
        None,
        Some(1),
        Some(4),
        Some(10),
        Some(11),
        Some(12),
        Some(40),
    ];
    for (step, before) in (8..).zip(before) {
        let failed = failed_after(coordinator, transactions, before).await;
        let attempts = before.unwrap_or(0) + 1;
        assert_eq!(failed, Some(attempts));
        let expected = f64::from(1 << attempts.min(12)).min(3_600.0);
        near(due_in(coordinator, "wrong", step).await, expected);
    }
}

/// Runs recovery on a transaction that cannot end, after these attempts. Returns the new number of
/// attempts.
async fn failed_after(
    coordinator: &Coordinator,
    transactions: &str,
    attempts: Option<u64>,
) -> Option<u64> {
    let record = Record {
        transaction_state: State::Created,
        // Breaks the rule of one effect for each document.
        effects: vec![Effect::add("a", 1), Effect::add("a", 1)],
        attempts,
        next_attempt_at: Some("2001-01-01T00:00:00Z".into()),
        ..coordinator.get("t").await.unwrap().unwrap()
    };
    let write = Operation::index(transactions, "wrong", &record).unwrap();
    coordinator.client().write(&write).await.unwrap();
    coordinator.client().refresh(transactions).await.unwrap();
    let recovered = coordinator.recover(Duration::from_secs(60)).await.unwrap();
    assert!(
        recovered.open.iter().any(|(id, _)| id == "wrong"),
        "{recovered:?}"
    );
    coordinator.get("wrong").await.unwrap().unwrap().attempts
}

#[tokio::test]
async fn the_server_and_the_fake_delay_retries_alike() {
    let (fake, faked) = fake(3, Marks::Compared).await;
    attempts_postpone_the_next(&faked, "transactions").await;
    drop(fake);
    if let Some(real) = coordinator("times").await {
        attempts_postpone_the_next(&real, "times-transactions").await;
    }
}
