//! What a relay has in hand while its destination takes nothing.

use posthaste::relay::Mode;
use posthaste_testkit::eventually;

use super::told::{Does, Told};
use super::{enqueue, setup};
use crate::support::{SOON, all_done, count, unfinished};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_takes_no_more_burns_no_attempt_and_is_offered_little_until_it_does() {
    let setup = setup().await;
    let (client, told) = (&setup.client, Told::default());
    let told = told.does("m", Does::NotNow);
    let names: Vec<String> = (0..60).map(|_| "m".into()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    enqueue(client, &names).await;
    let relay = told.relay().start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    let offered = async || Ok(told.told(|inner| inner.batches.len() >= 8));
    eventually(SOON, "it is offered some", offered)
        .await
        .unwrap();
    // Each time that nothing is taken the next offer comes later: a relay that does not wait offers thousands in that time.
    let status = relay.status();
    assert!(status.down_since.is_none(), "{status:?}");
    assert_eq!(status.last_error.as_deref(), Some("as it was told"));
    assert!(told.told(|inner| inner.batches.len()) < 40);
    let burnt = "SELECT sum(attempt)::bigint FROM posthaste.job";
    let burnt: i64 = client.query_one(burnt, &[]).await.unwrap().get(0);
    assert_eq!(burnt, 0);
    told.told(|inner| inner.does.clear());
    all_done(client).await;
    assert_eq!(told.taken().len(), 60);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_expires_in_the_hands_of_a_relay_is_not_sent() {
    for mode in [Mode::Drain, Mode::Outbox] {
        let setup = setup().await;
        let (client, told) = (&setup.client, Told::default());
        told.is_down(true);
        let brief = "SELECT posthaste.enqueue('brief', queue => 'mail', expires_at => clock_timestamp() + interval '1 s')";
        client.batch_execute(brief).await.unwrap();
        enqueue(client, &["long"]).await;
        let worker = setup.relay(told.relay().mode(mode)).await;
        let over = "SELECT bool_or(expires_at < clock_timestamp()) FROM posthaste.job";
        let over = async || Ok(client.query_one(over, &[]).await?.get(0));
        eventually(SOON, "its time is over", over).await.unwrap();
        told.is_down(false);
        let ended =
            async || Ok(count(client, "expired").await == 1 && unfinished(client).await == 1);
        eventually(SOON, "it is kept, and the other one is sent", ended)
            .await
            .unwrap();
        assert_eq!(told.taken(), ["long"], "{mode:?}");
        worker.stop().await.unwrap();
    }
}
