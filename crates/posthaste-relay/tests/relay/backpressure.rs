//! Jobs in a relay's memory while its destination accepts nothing.

use std::time::{Duration, Instant};

use posthaste_testkit::{Sql as _, eventually};
use tokio_postgres::Client;

use super::fake_destination::{Does, FakeDestination};
use super::{enqueue, setup};
use crate::support::{SOON, all_done, count, unfinished};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backpressure_counts_no_attempt_and_reduces_the_load() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let fake = fake.does("m", Does::Backpressure);
    enqueue(client, &["m"; 400]).await;
    let relay = fake.relay().start().await.unwrap();
    let since = Instant::now();
    let worker = setup.consumer(relay.clone()).await;
    let offered = async || Ok(fake.with(|inner| inner.batches.len() >= 20));
    eventually(SOON, "it is offered some", offered)
        .await
        .unwrap();
    // Four batches at a time, and each refused offer delays the next. A relay that does not wait
    // offers all of them in that time.
    assert!(since.elapsed() > Duration::from_millis(500));
    let status = relay.status();
    assert!(status.down_since.is_none(), "{status:?}");
    assert_eq!(status.last_error.as_deref(), Some("as configured"));
    let counted = "SELECT sum(attempt)::bigint FROM posthaste.job";
    let counted: i64 = client.one(counted).await.unwrap();
    assert_eq!(counted, 0);
    fake.with(|inner| inner.does.clear());
    all_done(client).await;
    assert_eq!(fake.taken().len(), 400);
    worker.stop().await.unwrap();
}

/// Even beside a message that leaves its whole batch without answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_messages_block_others_only_in_an_ordered_relay() {
    let names = ["denied", "one", "bad", "two", "denied", "three"];
    for ordered in [false, true] {
        let setup = setup().await;
        let (client, fake) = (&setup.client, FakeDestination::default());
        let fake = fake.does("denied", Does::Deny).does("bad", Does::Break);
        enqueue(client, &names).await;
        let relay = fake.relay().batch(names.len()).ordered(ordered);
        let relay = relay.start().await.unwrap();
        let worker = setup.consumer(relay.clone()).await;
        let offered = async || {
            let others = if ordered { 0 } else { 3 };
            let status = relay.status();
            Ok(status.unavailable > 20 && fake.taken().len() == others)
        };
        eventually(SOON, "the others pass", offered).await.unwrap();
        let counted = "SELECT sum(attempt)::bigint FROM posthaste.job WHERE name = 'denied'";
        let counted: i64 = client.one(counted).await.unwrap();
        assert_eq!(counted, 0);
        fake.with(|inner| inner.does.clear());
        all_done(client).await;
        let taken = fake.taken();
        assert_eq!(taken.len(), names.len());
        assert!(!ordered || taken[0] == "denied", "{taken:?}");
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_relay_keeps_its_order_during_backpressure() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        fake.with(|inner| inner.does.insert(name, Does::Backpressure));
    }
    enqueue(client, &names[..3]).await;
    let relay = fake.relay().ordered(true).batch(2);
    let worker = setup.relay(relay).await;
    let offered = async |times| {
        let times = fake.with(|inner| inner.batches.len()) + times;
        let offered = async || Ok(fake.with(|inner| inner.batches.len() >= times));
        eventually(SOON, "it is offered", offered).await.unwrap();
    };
    offered(2).await;
    enqueue(client, &names[3..]).await;
    offered(2).await;
    fake.with(|inner| inner.does.clear());
    all_done(client).await;
    assert_eq!(fake.taken(), names);
    worker.stop().await.unwrap();
}

const BRIEF: &str = "SELECT posthaste.enqueue('brief', queue => 'mail', \
                     expires_at => clock_timestamp() + interval '1500 ms')";

async fn expires_unsent(client: &Client, fake: &FakeDestination) {
    let ended = async || Ok(count(client, "expired").await == 1 && unfinished(client).await == 1);
    let ended = eventually(SOON, "it is kept, and the other one is sent", ended).await;
    ended.unwrap();
    assert_eq!(fake.taken(), ["long"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_expiring_in_an_ordered_relay_are_not_sent() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let relay = fake.relay().ordered(true).start().await.unwrap();
    fake.is_down(true);
    client.run(BRIEF).await.unwrap();
    enqueue(client, &["long"]).await;
    let worker = setup.consumer(relay).await;
    let tried = async || Ok(fake.with(|inner| inner.batches.len()) > 0);
    eventually(SOON, "it has them in hand", tried)
        .await
        .unwrap();
    let over = "SELECT bool_or(expires_at < clock_timestamp()) FROM posthaste.job";
    let over = async || client.one(over).await;
    eventually(SOON, "its time is over", over).await.unwrap();
    fake.is_down(false);
    expires_unsent(client, &fake).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_expiring_in_the_buffer_are_not_sent() {
    let setup = setup().await;
    let (client, fake) = (&setup.client, FakeDestination::default());
    let fake = fake.does("long", Does::Hang);
    enqueue(client, &["long"]).await;
    client.run(BRIEF).await.unwrap();
    let limit = Duration::from_secs(3);
    let relay = fake.relay().batch(1).concurrency(1).time_limit(limit);
    let worker = setup.relay(relay).await;
    let tried = async || Ok(fake.with(|inner| inner.batches.len()) > 0);
    eventually(SOON, "the other one waits after it", tried)
        .await
        .unwrap();
    fake.with(|inner| inner.does.clear());
    expires_unsent(client, &fake).await;
    worker.stop().await.unwrap();
}
