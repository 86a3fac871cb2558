//! A mail server that is down, and one that refuses a mail temporarily again and again.

use std::time::Duration;

use posthaste::Backoff;
use posthaste_relay::{Asynq, Destination, Message};
use posthaste_testkit::eventually;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::worker::{Step, Worker};
use super::{Log, Setup};
use crate::support::SOON;

/// Returns its attempts and the reason why it waits.
async fn attempts(setup: &Setup, id: Uuid) -> (i32, Option<String>) {
    let attempts = "SELECT attempt, reason FROM mail_deliveries WHERE delivery_id = $1";
    let row = setup.client.query_one(attempts, &[&id]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn a_dead_mail_server_counts_no_attempt() {
    let test = "a_dead_mail_server_counts_no_attempt";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let (log, _guard) = Log::begin();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(setup.order().await);
    }
    setup.server.kill9().unwrap();
    let quick = Duration::from_millis(20);
    let worker = Worker {
        outage: Backoff {
            base: quick,
            cap: quick,
        },
        ..setup.worker()
    };
    let stop = CancellationToken::new();
    let watching = async {
        let asked = async || Ok(log.count("the mail server is still down") > 9);
        eventually(SOON, "it is asked", asked).await.unwrap();
        let mut tried = 0;
        for id in &ids {
            let (attempt, reason) = attempts(&setup, *id).await;
            assert_eq!((attempt, setup.state(*id).await.as_str()), (0, "queued"));
            tried += usize::from(reason.is_some());
        }
        assert_eq!(tried, 1, "no mail was taken meanwhile");
        setup.server.restart().unwrap();
        for id in &ids {
            let sent = async || Ok(setup.state(*id).await == "sent");
            eventually(SOON, "it is sent", sent).await.unwrap();
            assert_eq!(attempts(&setup, *id).await.0, 1);
        }
        stop.cancel();
    };
    tokio::join!(worker.run(stop.clone()), watching);
    assert_eq!(log.count("the mail server answers again"), 1);
}

#[tokio::test]
async fn workers_waiting_for_a_mail_server_stop_at_once() {
    let test = "workers_waiting_for_a_mail_server_stop_at_once";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let (log, _guard) = Log::begin();
    setup.order().await;
    setup.server.kill9().unwrap();
    let hour = Duration::from_secs(3600);
    let worker = Worker {
        outage: Backoff {
            base: hour,
            cap: hour,
        },
        ..setup.worker()
    };
    let stop = CancellationToken::new();
    let stopping = async {
        let waits = async || Ok(log.count("the mail server is down") > 0);
        eventually(SOON, "it waits", waits).await.unwrap();
        stop.cancel();
    };
    let both = async { tokio::join!(worker.run(stop.clone()), stopping) };
    tokio::time::timeout(SOON, both).await.unwrap();
}

/// Returns the delay of the task in seconds, and makes it due now.
fn pause(setup: &Setup, id: Uuid) -> f64 {
    let retry = "asynq:{mail}:retry";
    let id = id.to_string();
    let number = |value: &Value| value.to_string().replace('"', "").parse::<f64>().unwrap();
    let due = number(&setup.redis.ask(&["ZSCORE", retry, &id]).unwrap());
    let now = number(&setup.redis.ask(&["TIME"]).unwrap()[0]);
    let brought = ["ZADD", retry, "XX", "CH", "1", &id];
    assert_eq!(setup.redis.ask(&brought).unwrap(), json!(1));
    due - now
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deferred_mails_back_off_and_fail_after_their_retries() {
    let test = "deferred_mails_back_off_and_fail_after_their_retries";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    setup
        .server
        .set_behaviour(&json!({ "rcpt": "450 later" }))
        .unwrap();
    let id = setup.ordered().await;
    let asynq = Asynq::new(&setup.redis.url()).unwrap();
    let asynq = asynq.queue("mail").max_retry(2);
    asynq.send(&[Message::new(id, "mail:send", "{}")]).await;
    let worker = Worker {
        retries: Backoff {
            base: Duration::from_secs(1000),
            cap: Duration::from_secs(3600),
        },
        ..setup.worker()
    };
    // Half of a delay is random, and Redis counts in whole seconds.
    for pauses in [490.0..1001.0, 990.0..2001.0] {
        assert_eq!(worker.step().await.unwrap(), Step::Worked);
        assert_eq!(setup.state(id).await, "queued");
        let pause = pause(&setup, id);
        assert!(pauses.contains(&pause), "{pause} is not in {pauses:?}");
    }
    assert_eq!(worker.step().await.unwrap(), Step::Worked);
    assert_eq!(
        (setup.state(id).await.as_str(), setup.task(id)),
        ("failed", "archived".into())
    );
    let (attempt, reason) = attempts(&setup, id).await;
    let reason = reason.unwrap();
    assert_eq!(attempt, 3);
    assert!(
        reason.contains("450") && reason.ends_with("(tried 3 times)"),
        "{reason}"
    );
    assert_eq!(worker.step().await.unwrap(), Step::Idle);
}
