//! Kafka: the suite on a real broker, records that it refuses, and an independent consumer.

mod mocked;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::NewJob;
use posthaste_relay::{Answer, Destination, Kafka, Mapping, Message, Relay, Template};
use posthaste_testkit::receivers::{self, Receiver, Worker, are_here};
use posthaste_testkit::{Proxy, Sql as _, eventually, unique};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::json;

use super::conformance::{Received, Subject, conformance};
use super::{enqueue, outcome_of, setup};
use crate::support::{SOON, all_done, unfinished};

/// The replication of a single broker.
pub(super) const ONE: TopicReplication<'static> = TopicReplication::Fixed(1);

/// Creates a topic: the broker creates none by itself.
pub(super) async fn create(bootstrap: &str, topic: NewTopic<'_>) {
    let mut config = ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        config.set("bootstrap.servers", bootstrap).create().unwrap();
    let created = admin.create_topics(&[topic], &AdminOptions::new()).await;
    created.unwrap()[0].as_ref().unwrap();
}

/// Returns everything in a topic, in its order.
pub(super) fn records(bootstrap: &str, topic: &str) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "tests")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "false")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), SOON).unwrap();
    let mut all = TopicPartitionList::new();
    let mut left = 0;
    for partition in metadata.topics()[0].partitions() {
        let (low, high) = consumer
            .fetch_watermarks(topic, partition.id(), SOON)
            .unwrap();
        left += high - low;
        all.add_partition_offset(topic, partition.id(), Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&all).unwrap();
    let record = |_| consumer.poll(SOON).expect("a record").unwrap().detach();
    (0..left).map(record).collect()
}

/// Returns a record's header of this name.
pub(super) fn header(record: &OwnedMessage, name: &str) -> String {
    let mut headers = record.headers().unwrap().iter();
    let header = headers.find(|header| header.key == name).unwrap();
    String::from_utf8(header.value.unwrap().to_vec()).unwrap()
}

fn read(bootstrap: &str, topic: &str) -> Vec<(Received, Option<String>, i32)> {
    let records = records(bootstrap, topic).into_iter();
    let read = records.map(|record| {
        let one = Received {
            id: header(&record, "id"),
            payload: serde_json::from_slice(record.payload().unwrap()).unwrap(),
        };
        let key = record
            .key()
            .map(|key| String::from_utf8(key.to_vec()).unwrap());
        (one, key, record.partition())
    });
    read.collect()
}

async fn received(bootstrap: &str, topic: &str) -> Vec<Received> {
    let (bootstrap, topic) = (bootstrap.to_owned(), topic.to_owned());
    let read = tokio::task::spawn_blocking(move || read(&bootstrap, &topic));
    let read = read.await.unwrap().into_iter();
    read.map(|(one, ..)| one).collect()
}

/// Sends to the test's topic, whatever the job's name.
struct To {
    kafka: Kafka,
    topic: String,
}

impl Destination for To {
    fn label(&self) -> String {
        self.kafka.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async {
            let to = |message: &Message| {
                let mut message = message.clone();
                message.kind.clone_from(&self.topic);
                message
            };
            let batch: Vec<Message> = batch.iter().map(to).collect();
            self.kafka.send(&batch).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.kafka.probe()
    }
}

struct Topic {
    topic: String,
    proxy: Proxy,
}

impl Subject for Topic {
    const DEDUPLICATES: bool = false;
    /// A record's headers add to its value, and a topic accepts 1 MiB in total.
    const LARGEST: usize = (1 << 20) - 1000;

    async fn start() -> Option<Self> {
        if !are_here("kafka", &[Receiver::Kafka]) {
            return None;
        }
        let kafka = receivers::Kafka::shared().unwrap();
        let proxy = kafka.proxy().await.unwrap();
        let topic = unique("mail");
        create(&kafka.bootstrap(), NewTopic::new(&topic, 1, ONE)).await;
        Some(Self { topic, proxy })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let kafka = Kafka::new(&self.proxy.address().to_string()).unwrap();
        let topic = self.topic.clone();
        Arc::new(To { kafka, topic })
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let kafka = receivers::Kafka::shared().unwrap();
        received(&kafka.bootstrap(), &self.topic).await
    }

    fn unacceptable(&self) -> Option<NewJob> {
        let text = "x".repeat((1 << 20) - 14);
        Some(NewJob::new("mail", &json!({ "text": text })).unwrap())
    }
}

conformance!(Topic, and:
    a_permanently_rejected_message_does_not_affect_others,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kafka_consumer_reads_every_record() {
    let test = "a_kafka_consumer_reads_every_record";
    if !are_here(test, &[Receiver::Kafka, Receiver::Celery]) {
        return;
    }
    let bootstrap = receivers::Kafka::shared().unwrap().bootstrap();
    let topic = unique("mails");
    create(&bootstrap, NewTopic::new(&topic, 1, ONE)).await;
    let consumer = Worker::kafka(&bootstrap, &topic).unwrap();
    let setup = setup().await;
    let client = &setup.client;
    let enqueue = r#"SELECT posthaste.delivery_id(
                       posthaste.enqueue('sent', '{"to": "ada"}', queue => 'mail',
                                         ordering_key => 'ada', trace => $1))::text"#;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let id: String = client.one_with(enqueue, &[&trace]).await.unwrap();
    let mapping = Mapping::default()
        .kind(Template::text(topic.as_str()))
        .header("tenant", Template::text("acme"));
    let relay = Relay::to(Kafka::new(&bootstrap).unwrap()).mapping(mapping);
    let worker = setup.relay(relay).await;
    all_done(client).await;
    let effects = consumer.wait_for(1, SOON).await.unwrap();
    assert_eq!((&effects[0].id, &effects[0].name), (&id, &topic));
    assert_eq!(effects[0].args, json!({ "to": "ada" }));
    let all = &effects[0].all;
    assert_eq!(all["key"], "ada");
    assert_eq!(
        all["headers"],
        json!({ "id": id, "name": "sent", "tenant": "acme", "traceparent": trace })
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_with_one_ordering_key_stay_in_order_in_one_partition() {
    let test = "records_with_one_ordering_key_stay_in_order_in_one_partition";
    if !are_here(test, &[Receiver::Kafka]) {
        return;
    }
    let bootstrap = receivers::Kafka::shared().unwrap().bootstrap();
    let topic = unique("keyed");
    create(&bootstrap, NewTopic::new(&topic, 4, ONE)).await;
    let setup = setup().await;
    let client = &setup.client;
    let enqueue = "SELECT posthaste.enqueue('m', jsonb_build_object('n', n), queue => 'mail', \
                   ordering_key => 'k' || n % 5) FROM generate_series(1, 100) n";
    client.run(enqueue).await.unwrap();
    let mapping = Mapping::default().kind(Template::text(topic.as_str()));
    let relay = Relay::to(Kafka::new(&bootstrap).unwrap()).mapping(mapping);
    let worker = setup.relay(relay).await;
    all_done(client).await;
    let read = read(&bootstrap, &topic);
    assert_eq!(read.len(), 100);
    for n in 0..5 {
        let key = Some(format!("k{n}"));
        let of: Vec<_> = read.iter().filter(|(_, of, _)| *of == key).collect();
        let numbers = of
            .iter()
            .map(|(one, ..)| one.payload["n"].as_i64().unwrap());
        assert!(numbers.is_sorted(), "{of:?}");
        assert!(
            of.iter().all(|(.., partition)| *partition == of[0].2),
            "{of:?}"
        );
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_to_a_missing_topic_wait_and_others_pass() {
    let test = "messages_to_a_missing_topic_wait_and_others_pass";
    if !are_here(test, &[Receiver::Kafka]) {
        return;
    }
    let bootstrap = receivers::Kafka::shared().unwrap().bootstrap();
    let (here, missing) = (unique("here"), unique("missing"));
    create(&bootstrap, NewTopic::new(&here, 1, ONE)).await;
    let setup = setup().await;
    let client = &setup.client;
    enqueue(client, &[&here, &missing, &here, "not/a topic"]).await;
    let quick = Duration::from_millis(200);
    let relay = Relay::to(Kafka::new(&bootstrap).unwrap()).backoff(posthaste::Backoff {
        base: quick,
        cap: quick,
    });
    let worker = setup.relay(relay).await;
    let is_reported = async || {
        let outcome = outcome_of(client, &missing).await;
        let is_expected = |error: String| error.contains("Unknown topic");
        let is_reported = outcome
            .is_some_and(|(_, counted, error)| counted > 0 && error.is_some_and(is_expected));
        Ok(is_reported && unfinished(client).await == 2)
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    let (state, _, error) = outcome_of(client, "not/a topic").await.unwrap();
    assert_eq!(state, "discarded", "{error:?}");
    create(&bootstrap, NewTopic::new(&missing, 1, ONE)).await;
    let only = async || Ok(unfinished(client).await == 1);
    eventually(SOON, "it is taken", only).await.unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_rejected_individually() {
    let test = "records_are_rejected_individually";
    if !are_here(test, &[Receiver::Kafka]) {
        return;
    }
    let bootstrap = receivers::Kafka::shared().unwrap().bootstrap();
    let topic = unique("small");
    let new = NewTopic::new(&topic, 1, ONE).set("max.message.bytes", "4000");
    create(&bootstrap, new).await;
    // Records of the same second are sent in one request.
    let kafka = Kafka::new(&bootstrap).unwrap();
    let kafka = kafka.set("linger.ms", "1000").unwrap();
    let message =
        |bytes: usize| Message::new(uuid::Uuid::new_v4(), topic.as_str(), "x".repeat(bytes));
    let (others, alone) = ([message(3000), message(3000)], [message(10)]);
    let (others, alone) = tokio::join!(kafka.send(&others), kafka.send(&alone));
    assert!(
        others.iter().all(|one| *one != Answer::Accepted),
        "{others:?}"
    );
    assert_eq!(alone, [Answer::Accepted]);
    let refused = kafka.send(&[message(5000)]).await;
    assert!(
        matches!(refused[..], [Answer::Rejected { .. }]),
        "{refused:?}"
    );
}

#[tokio::test]
async fn missing_kafka_features_are_refused_at_start() {
    let kafka = || Kafka::new("127.0.0.1:1").unwrap();
    for (name, value, error) in [
        ("security.protocol", "SASL_SSL", "does not support TLS"),
        ("security.protocol", "ssl", "does not support TLS"),
        ("sasl.mechanism", "SCRAM-SHA-512", "supports only PLAIN"),
        ("sasl.mechanisms", "OAUTHBEARER", "supports only PLAIN"),
    ] {
        let refused = kafka().set(name, value).err().unwrap().to_string();
        assert!(refused.contains(error), "{refused}");
    }
    // Its default mechanism is GSSAPI.
    let kafka = kafka().set("security.protocol", "sasl_plaintext").unwrap();
    let refused = Relay::to(kafka).start().await.err().unwrap().to_string();
    assert!(refused.contains("GSSAPI"), "{refused}");
}

#[test]
fn the_kafka_password_never_leaks() {
    let wrong = Kafka::new("kafka://ada:hunter2@kafka:9092").err().unwrap();
    assert!(!wrong.to_string().contains("hunter2"), "{wrong}");
    let kafka = Kafka::new("kafka://one:9092,two:9092").unwrap();
    let kafka = kafka.set("sasl.password", "hunter2").unwrap();
    assert_eq!(kafka.label(), "kafka at one:9092,two:9092");
    let wrong = kafka.set("compression.type", "hunter2").err().unwrap();
    assert!(!wrong.to_string().contains("hunter2"), "{wrong}");
    let promise = Kafka::new("one:9092")
        .unwrap()
        .set("acks", "0")
        .err()
        .unwrap();
    assert!(promise.to_string().contains("acks"), "{promise}");
}
