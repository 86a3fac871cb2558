//! When a transaction is looked for next, on the server and on the fake: recovery goes by it.

use jiff::Timestamp;
use posthaste_elastic::two_phase::{
    Coordinator, Effect, Event, Request, Response, State, Transaction,
};

use super::fake::{Marks, fake};
use super::{coordinator, opened};

/// What a busy machine may take between two requests.
const NEAR: f64 = 20.0;

/// How many seconds from now a transaction is due, by the clock of the server.
async fn due_in(coordinator: &Coordinator, id: &str, step: u32) -> Option<f64> {
    let now = Transaction::new(&format!("now-{step}"), vec![Effect::add("a", 1)]).unwrap();
    coordinator.create(&now).await.unwrap();
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

async fn each_attempt_puts_the_next_one_off(coordinator: &Coordinator) {
    opened(coordinator, &[("a", 0)]).await;
    let transaction = Transaction::new("t", vec![Effect::add("a", 1)]).unwrap();
    coordinator.create(&transaction).await.unwrap();
    let ask = async |request| {
        let (answers, error) = coordinator.ask(&transaction, &[request], None).await;
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
    for attempt in 1..=14 {
        ask(Request::Touch(State::Pending)).await;
        let expected = f64::from(1 << attempt.min(12)).min(3_600.0);
        near(due_in(coordinator, "t", attempt).await, expected);
    }
    ask(Request::Advance(State::Pending, Event::Abandoned)).await;
    near(due_in(coordinator, "t", 15).await, 0.0);
    ask(Request::Advance(State::Terminating, Event::Undone)).await;
    assert_eq!(
        due_in(coordinator, "t", 16).await,
        None,
        "nobody looks for it any more"
    );
}

#[tokio::test]
async fn the_server_and_the_fake_put_the_next_attempt_off_alike() {
    let (fake, faked) = fake(3, Marks::Compared).await;
    each_attempt_puts_the_next_one_off(&faked).await;
    drop(fake);
    if let Some(real) = coordinator("times").await {
        each_attempt_puts_the_next_one_off(&real).await;
    }
}
