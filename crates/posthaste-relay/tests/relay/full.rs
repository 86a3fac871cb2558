//! Brokers that answer and accept no more: no probe detects it, and no attempt is counted for it.

use posthaste_relay::Relay;
use posthaste_testkit::receivers::{Receiver, are_here};
use posthaste_testkit::{Sql as _, eventually};
use tokio_postgres::Client;

use super::{enqueue, setup};
use crate::support::{SOON, all_done, unfinished};

async fn counted(client: &Client) -> i64 {
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    let now: i64 = client.one(counted).await.unwrap();
    let ever = "SELECT count(*) FROM posthaste.attempt";
    let ever: i64 = client.one(ever).await.unwrap();
    now + ever
}

#[cfg(feature = "rabbitmq")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_counts_no_attempt_and_blocks_no_other() {
    use super::rabbitmq::{Hands, shared};
    use lapin::types::AMQPValue;
    use posthaste_relay::RabbitMq;
    use posthaste_testkit::unique;

    let test = "a_full_queue_counts_no_attempt_and_blocks_no_other";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let (full, wide) = (unique("full"), unique("wide"));
    let hands = Hands::on(shared()).await;
    let refuses = AMQPValue::LongString("reject-publish".into());
    let room = [
        ("x-overflow", refuses),
        ("x-max-length", AMQPValue::LongInt(3)),
    ];
    hands.queue(&full, &room).await;
    hands.queue(&wide, &[]).await;
    let setup = setup().await;
    let client = &setup.client;
    let mut names = vec![full.as_str(); 12];
    names.extend([wide.as_str(); 8]);
    enqueue(client, &names).await;
    let relay = Relay::to(RabbitMq::new(shared()).unwrap()).batch(5);
    let relay = relay.start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    let offered = async || Ok(relay.status().accepted >= 11 && relay.status().unavailable >= 30);
    eventually(SOON, "it is offered again and again", offered)
        .await
        .unwrap();
    let error = relay.status().last_error.unwrap();
    assert!(error.contains("a queue is full"), "{error}");
    let left = unfinished(client).await;
    assert!((7..=9).contains(&left), "{left}");
    assert_eq!(counted(client).await, 0);
    let mut taken = Vec::new();
    let empty = async || {
        while let Some(message) = hands.take(&full).await {
            taken.push(message.properties.message_id().clone().unwrap().to_string());
        }
        Ok(unfinished(client).await == 0)
    };
    eventually(SOON, "there is room", empty).await.unwrap();
    while let Some(message) = hands.take(&full).await {
        taken.push(message.properties.message_id().clone().unwrap().to_string());
    }
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 12);
    assert_eq!(counted(client).await, 0);
    worker.stop().await.unwrap();
}

/// A real cluster of one node has enough replicas, so this uses the mock of Kafka's client library:
/// it shows how that library handles the answer, not how a broker behaves.
#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_with_too_few_replicas_count_no_attempt() {
    use posthaste_relay::Kafka;
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    let cluster = MockCluster::new(1).unwrap();
    let too_few = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 10_000];
    cluster.request_errors(RDKafkaApiKey::Produce, &too_few);
    let setup = setup().await;
    let client = &setup.client;
    enqueue(client, &["few"; 15]).await;
    // The client itself retries for this long.
    let kafka = Kafka::new(&cluster.bootstrap_servers()).unwrap();
    let kafka = kafka.set("message.timeout.ms", "1000").unwrap();
    let relay = Relay::to(kafka).batch(5).start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    let offered = async || Ok(relay.status().unavailable >= 30);
    let offered = eventually(SOON, "it is offered again", offered).await;
    offered.unwrap_or_else(|error| panic!("{error:#}: {:?}", relay.status()));
    assert_eq!((unfinished(client).await, counted(client).await), (15, 0));
    cluster.clear_request_errors(RDKafkaApiKey::Produce);
    all_done(client).await;
    assert_eq!(counted(client).await, 0);
    worker.stop().await.unwrap();
}
