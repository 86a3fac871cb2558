//! A mail of the mail example passes a relay, by the route of the example.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use posthaste_relay::Route;
use posthaste_testkit::receivers::{Receiver, are_here};
use posthaste_testkit::{TestResult, eventually};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::deliveries::Deliveries;
use super::queue::MAIL;
use super::{KEPT, Setup};
use crate::support::{self, SOON};

/// Reads a file of this crate or of the workspace.
fn file(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(path).unwrap()
}

/// Returns the lines of the route's file without comments and empty lines.
fn lines() -> Vec<String> {
    let file = file("examples/mail/posthaste.toml");
    let lines = file.lines().map(|line| line.split('#').next().unwrap());
    let lines = lines.map(|line| line.trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the settings of the file's only route.
fn route() -> Map<String, Value> {
    let lines = lines();
    assert_eq!(lines[0], "[route.mail]");
    let settings = lines[1..].iter().map(|line| {
        let (name, value) = line.split_once(" = ").unwrap();
        (name.to_owned(), serde_json::from_str(value).unwrap())
    });
    settings.collect()
}

#[test]
fn the_module_and_the_guide_quote_the_tested_route() {
    assert_eq!(route()["receiver_queue"], MAIL);
    let head = file("examples/mail/main.rs");
    let quoted: String = lines().iter().map(|line| format!("//! {line}\n")).collect();
    let quoted = format!("//! ```toml\n{quoted}//! ```\n");
    assert!(head.contains(&quoted), "the head has no\n{quoted}");
    let page = file("../../docs/guides/relay-smtp.md");
    let route = file("examples/mail/posthaste.toml");
    let quoted = format!("```toml\n{route}```\n");
    assert!(page.contains(&quoted), "the page has no\n{quoted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_orders_are_relayed_and_mailed() {
    let test = "committed_orders_are_relayed_and_mailed";
    let Some(setup) = Setup::with(test, &KEPT).await else {
        return;
    };
    // The file of the example, with the Redis of this test.
    let mut settings = route();
    settings.insert(
        "to".into(),
        setup.redis.url().replace("redis", "asynq").into(),
    );
    let route = Route::read("mail", &settings).unwrap();
    let queue = route.queue().to_owned();
    let relay = route.relay().start().await.unwrap();
    let relaying = support::worker(&setup.db.pool(2).unwrap()).consumer(&queue, relay);
    let relaying = relaying.start().await.unwrap();
    let stop = CancellationToken::new();
    let worker = setup.worker();
    let working = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    let mut client = setup.db.pool(1).unwrap().get().await.unwrap();
    for commits in [false, true] {
        let transaction = client.transaction().await.unwrap();
        let order = Deliveries::order(&transaction, "ada@example.com", "Welcome", "Hi.\n");
        let id = order.await.unwrap();
        if !commits {
            transaction.rollback().await.unwrap();
            continue;
        }
        transaction.commit().await.unwrap();
        let sent = async || Ok(setup.state(id).await == "sent");
        eventually(SOON, "it is sent", sent).await.unwrap();
        let mails = setup.server.effects().unwrap();
        assert_eq!(mails.len(), 1);
        // asynq records the end of a task after its handler has returned.
        let completed = async || Ok(setup.task(id) == "completed");
        eventually(SOON, "it is completed", completed)
            .await
            .unwrap();
        assert_eq!(mails[0].id, format!("<{id}@example.com>"));
    }
    relaying.stop().await.unwrap();
    stop.cancel();
    working.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynq_can_enqueue_to_and_consume_from_the_queue() -> TestResult {
    let test = "asynq_can_enqueue_to_and_consume_from_the_queue";
    let Some(setup) = Setup::new(test).await else {
        return Ok(());
    };
    if !are_here(test, &[Receiver::Asynq]) {
        return Ok(());
    }
    let id = setup.ordered().await;
    let client = Command::new(Receiver::Asynq.find().unwrap())
        .env("REDIS_URL", setup.redis.url())
        .args(["mail", &id.to_string(), "mail:send", "{}"])
        .output()
        .unwrap();
    assert!(client.status.success(), "{client:?}");
    setup.work_until(id, "sent").await;

    let theirs = Uuid::new_v4();
    setup.queue.again(theirs).await.unwrap();
    let asynq = posthaste_testkit::receivers::Worker::asynq(&setup.redis.url(), &["mail"]).unwrap();
    let effect = asynq.wait_for(1, SOON).await?.remove(0);
    assert_eq!(
        (effect.id, effect.name),
        (theirs.to_string(), "mail:send".to_owned())
    );
    let is_kept = async || Ok(setup.task(theirs) == "completed");
    eventually(SOON, "it is kept for a day there too", is_kept).await?;
    Ok(())
}
