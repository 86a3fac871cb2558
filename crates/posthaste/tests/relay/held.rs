//! What a relay has in hand while its destination takes nothing.

use std::time::{Duration, Instant};

use posthaste::relay::Mode;
use posthaste_testkit::eventually;
use tokio_postgres::Client;

use super::told::{Does, Told};
use super::{enqueue, setup};
use crate::support::{SOON, all_done, count, unfinished};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_takes_no_more_burns_no_attempt_and_is_offered_little_until_it_does() {
    let setup = setup().await;
    let (client, told) = (&setup.client, Told::default());
    let told = told.does("m", Does::NotNow);
    enqueue(client, &["m"; 1000]).await;
    let relay = told.relay().start().await.unwrap();
    let since = Instant::now();
    let worker = setup.consumer(relay.clone()).await;
    let offered = async || Ok(told.told(|inner| inner.batches.len() >= 20));
    eventually(SOON, "it is offered some", offered)
        .await
        .unwrap();
    // Four batches at a time, and each time that nothing is taken the next offer comes later. A relay that does not wait offers all of them in that time.
    assert!(since.elapsed() > Duration::from_millis(500));
    let status = relay.status();
    assert!(status.down_since.is_none(), "{status:?}");
    assert_eq!(status.last_error.as_deref(), Some("as it was told"));
    let burnt = "SELECT sum(attempt)::bigint FROM posthaste.job";
    let burnt: i64 = client.query_one(burnt, &[]).await.unwrap().get(0);
    assert_eq!(burnt, 0);
    told.told(|inner| inner.does.clear());
    all_done(client).await;
    assert_eq!(told.taken().len(), 1000);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_keeps_its_order_while_nothing_is_taken() {
    let setup = setup().await;
    let (client, told) = (&setup.client, Told::default());
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        told.told(|inner| inner.does.insert(name, Does::NotNow));
    }
    enqueue(client, &names[..3]).await;
    let relay = told.relay().mode(Mode::Drain).batch(2);
    let worker = setup.relay(relay).await;
    let offered = async |times| {
        let times = told.told(|inner| inner.batches.len()) + times;
        let offered = async || Ok(told.told(|inner| inner.batches.len() >= times));
        eventually(SOON, "it is offered", offered).await.unwrap();
    };
    offered(2).await;
    enqueue(client, &names[3..]).await;
    offered(2).await;
    told.told(|inner| inner.does.clear());
    all_done(client).await;
    assert_eq!(told.taken(), names);
    worker.stop().await.unwrap();
}

const BRIEF: &str = "SELECT posthaste.enqueue('brief', queue => 'mail', expires_at => clock_timestamp() + interval '1500 ms')";

async fn it_expires_and_is_not_sent(client: &Client, told: &Told) {
    let ended = async || Ok(count(client, "expired").await == 1 && unfinished(client).await == 1);
    let ended = eventually(SOON, "it is kept, and the other one is sent", ended).await;
    ended.unwrap();
    assert_eq!(told.taken(), ["long"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_expires_in_the_hands_of_a_drain_is_not_sent() {
    let setup = setup().await;
    let (client, told) = (&setup.client, Told::default());
    let relay = told.relay().mode(Mode::Drain).start().await.unwrap();
    told.is_down(true);
    client.batch_execute(BRIEF).await.unwrap();
    enqueue(client, &["long"]).await;
    let worker = setup.consumer(relay).await;
    let tried = async || Ok(told.told(|inner| inner.batches.len()) > 0);
    eventually(SOON, "it has them in hand", tried)
        .await
        .unwrap();
    let over = "SELECT bool_or(expires_at < clock_timestamp()) FROM posthaste.job";
    let over = async || Ok(client.query_one(over, &[]).await?.get(0));
    eventually(SOON, "its time is over", over).await.unwrap();
    told.is_down(false);
    it_expires_and_is_not_sent(client, &told).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_expires_in_a_relays_line_is_not_sent() {
    let setup = setup().await;
    let (client, told) = (&setup.client, Told::default());
    let told = told.does("long", Does::Hang);
    enqueue(client, &["long"]).await;
    client.batch_execute(BRIEF).await.unwrap();
    let limit = Duration::from_secs(3);
    let relay = told.relay().batch(1).concurrency(1).time_limit(limit);
    let worker = setup.relay(relay).await;
    let tried = async || Ok(told.told(|inner| inner.batches.len()) > 0);
    eventually(SOON, "the other one waits behind it", tried)
        .await
        .unwrap();
    told.told(|inner| inner.does.clear());
    it_expires_and_is_not_sent(client, &told).await;
    worker.stop().await.unwrap();
}
