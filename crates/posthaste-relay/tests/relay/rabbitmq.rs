//! RabbitMQ: the suite on a real server, messages that it returns, channels that it closes,
//! publishers that it blocks, and an independent consumer.

use std::sync::{Arc, OnceLock};

use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use posthaste::NewJob;
use posthaste_relay::{Destination, Mapping, RabbitMq, Relay, Template};
use posthaste_testkit::receivers::{self, Receiver, Worker, are_here};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, eventually, unique};
use serde_json::json;

use super::conformance::{Received, Subject, conformance};
use super::{enqueue, outcome_of, setup};
use crate::support::{SOON, all_done, database, worker};

/// Returns the relay's virtual host on the server that all tests share.
pub(super) fn shared() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    let rabbitmq = receivers::RabbitMq::shared().unwrap();
    URL.get_or_init(|| rabbitmq.url("relay").unwrap())
}

/// Returns the same URL through a proxy.
pub(super) async fn behind_a_proxy() -> (Proxy, String) {
    let port = receivers::RabbitMq::shared().unwrap().port();
    let proxy = Proxy::start_raw(([127, 0, 0, 1], port).into())
        .await
        .unwrap();
    let url = format!("amqp://guest:guest@{}/relay", proxy.address());
    (proxy, url)
}

/// The actions of a receiver at RabbitMQ.
pub(super) struct Hands {
    // The channel lives as long as its connection.
    _connection: Connection,
    channel: Channel,
}

impl Hands {
    pub(super) async fn on(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default());
        let connection = connection.await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self {
            _connection: connection,
            channel,
        }
    }

    pub(super) async fn queue(&self, name: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let declared = self.channel.queue_declare(name.into(), options, table);
        declared.await.unwrap();
    }

    async fn exchange(&self, name: &str) {
        let options = ExchangeDeclareOptions::default();
        let none = FieldTable::default();
        let kind = ExchangeKind::Topic;
        let declared = self
            .channel
            .exchange_declare(name.into(), kind, options, none);
        declared.await.unwrap();
    }

    pub(super) async fn bind(&self, queue: &str, exchange: &str, key: &str) {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let bound =
            self.channel
                .queue_bind(queue.into(), exchange.into(), key.into(), options, none);
        bound.await.unwrap();
    }

    async fn unbind(&self, queue: &str, exchange: &str, key: &str) {
        let none = FieldTable::default();
        let unbound = self
            .channel
            .queue_unbind(queue.into(), exchange.into(), key.into(), none);
        unbound.await.unwrap();
    }

    /// Deletes a queue and its messages.
    pub(super) async fn delete(&self, queue: &str) {
        let options = QueueDeleteOptions::default();
        let deleted = self.channel.queue_delete(queue.into(), options);
        deleted.await.unwrap();
    }

    /// Takes the next message of a queue.
    pub(super) async fn take(&self, queue: &str) -> Option<lapin::message::Delivery> {
        let options = BasicGetOptions { no_ack: true };
        let taken = self.channel.basic_get(queue.into(), options).await.unwrap();
        taken.map(|message| message.delivery)
    }
}

struct Queue {
    hands: Hands,
    name: String,
    proxy: Proxy,
    url: String,
    seen: tokio::sync::Mutex<Vec<Received>>,
}

/// A queue that accepts nothing.
const FULL: &str = "full";

/// Arguments of a queue that accepts nothing.
pub(super) fn no_room() -> [(&'static str, AMQPValue); 2] {
    let refuse = AMQPValue::LongString("reject-publish".into());
    [
        ("x-overflow", refuse),
        ("x-max-length", AMQPValue::LongInt(0)),
    ]
}

/// A job that is larger than the server's limit.
pub(super) fn too_large() -> NewJob {
    let text = "x".repeat((1 << 20) - 14);
    NewJob::new("mail", &json!({ "text": text })).unwrap()
}

impl Subject for Queue {
    const DEDUPLICATES: bool = false;

    async fn start() -> Option<Self> {
        if !are_here("rabbitmq", &[Receiver::RabbitMq]) {
            return None;
        }
        let hands = Hands::on(shared()).await;
        let name = unique("mail");
        hands.queue(&name, &[]).await;
        hands.queue(FULL, &no_room()).await;
        hands.exchange(&name).await;
        hands.bind(&name, &name, "mail").await;
        let (proxy, url) = behind_a_proxy().await;
        Some(Self {
            hands,
            name,
            proxy,
            url,
            seen: tokio::sync::Mutex::default(),
        })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let rabbitmq = RabbitMq::new(&self.url).unwrap();
        Arc::new(rabbitmq.exchange(&self.name))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let mut seen = self.seen.lock().await;
        while let Some(message) = self.hands.take(&self.name).await {
            let id = message.properties.message_id().clone();
            seen.push(Received {
                id: id.unwrap().to_string(),
                payload: serde_json::from_slice(&message.data).unwrap(),
            });
        }
        seen.clone()
    }

    fn unacceptable(&self) -> Option<NewJob> {
        Some(too_large())
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        let (from, to) = match refuse {
            true => (self.name.as_str(), FULL),
            false => (FULL, self.name.as_str()),
        };
        self.hands.bind(to, &self.name, "mail").await;
        self.hands.unbind(from, &self.name, "mail").await;
        true
    }
}

conformance!(Queue, and:
    a_permanently_rejected_message_does_not_affect_others,
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rabbitmq_consumer_reads_every_message() {
    let test = "a_rabbitmq_consumer_reads_every_message";
    if !are_here(test, &[Receiver::RabbitMq, Receiver::Celery]) {
        return;
    }
    let queue = unique("mails");
    let hands = Hands::on(shared()).await;
    hands.queue(&queue, &[]).await;
    let consumer = Worker::rabbitmq(shared(), &[&queue]).unwrap();
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let enqueue = "SELECT posthaste.delivery_id(posthaste.enqueue('mail.send', $1::text::jsonb, \
                   queue => 'm', priority => -7, trace => $2))::text";
    let kwargs = json!({ "to": "ada" });
    let text = kwargs.to_string();
    let row = client.query_one(enqueue, &[&text, &parent]).await;
    let id: String = row.unwrap().get(0);
    let mapping = Mapping::default()
        .kind(Template::text(queue.as_str()))
        .header("tenant", Template::text("acme"));
    let relay = Relay::to(RabbitMq::new(shared()).unwrap().expires()).mapping(mapping);
    let relay = relay.start().await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("m", relay);
    let worker = worker.start().await.unwrap();
    all_done(&client).await;
    let effects = consumer.wait_for(1, SOON).await.unwrap();
    assert_eq!((&effects[0].id, &*effects[0].name), (&id, "mail.send"));
    assert_eq!(effects[0].args, kwargs);
    let all = &effects[0].all;
    assert_eq!(
        all["headers"],
        json!({ "tenant": "acme", "traceparent": parent })
    );
    assert_eq!(all["content_type"], "application/json");
    let properties = &all["properties"];
    assert_eq!(
        (&properties["delivery_mode"], &properties["priority"]),
        (&json!(2), &json!(7))
    );
    let left: u64 = properties["expiration"].as_str().unwrap().parse().unwrap();
    let month = 30 * 24 * 3600 * 1000;
    assert!((month - 3_600_000..=month).contains(&left), "{left}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_without_a_queue_wait_and_others_pass() {
    let test = "messages_without_a_queue_wait_and_others_pass";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let (here, missing) = (unique("here"), unique("missing"));
    let hands = Hands::on(shared()).await;
    hands.queue(&here, &[]).await;
    let setup = setup().await;
    let client = &setup.client;
    let mut names = vec![here.as_str(); 30];
    names[11] = &missing;
    enqueue(client, &names).await;
    let quick = std::time::Duration::from_millis(100);
    let relay = Relay::to(RabbitMq::new(shared()).unwrap()).batch(30);
    let relay = relay.backoff(posthaste::Backoff {
        base: quick,
        cap: quick,
    });
    let worker = setup.relay(relay).await;
    let is_reported = async || {
        let outcome = outcome_of(client, &missing).await;
        Ok(outcome.is_some_and(|(_, counted, error)| {
            counted > 0 && error.is_some_and(|error| error.contains("RabbitMQ has no queue for it"))
        }))
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    let only = async || Ok(crate::support::unfinished(client).await == 1);
    eventually(SOON, "all others are done", only).await.unwrap();
    hands.queue(&missing, &[]).await;
    all_done(client).await;
    assert!(hands.take(&missing).await.is_some());
    let mut others = 0;
    while hands.take(&here).await.is_some() {
        others += 1;
    }
    assert_eq!(others, 29, "none was sent twice for it");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_closed_for_one_exchange_spares_the_others() {
    let test = "a_channel_closed_for_one_exchange_spares_the_others";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let name = unique("there");
    let hands = Hands::on(shared()).await;
    hands.queue(&name, &[]).await;
    hands.exchange(&name).await;
    hands.bind(&name, &name, "#").await;
    let missing = unique("not-there");
    let setup = setup().await;
    let client = &setup.client;
    let names = [&*name, &*missing, &*name, &*name];
    enqueue(client, &names).await;
    let mapping = Mapping::default().queue(Template::parse("{name}").unwrap());
    let relay = Relay::to(RabbitMq::new(shared()).unwrap()).mapping(mapping);
    let worker = setup.relay(relay).await;
    let is_reported = async || {
        let outcome = outcome_of(client, &missing).await;
        let is_expected = |error: String| error.contains("no exchange") && error.contains(&missing);
        Ok(outcome
            .is_some_and(|(_, counted, error)| counted == 1 && error.is_some_and(is_expected)))
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    assert_eq!(crate::support::unfinished(client).await, 1);
    let mut taken = 0;
    while hands.take(&name).await.is_some() {
        taken += 1;
    }
    assert_eq!(taken, 3);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_alarm_stops_the_relay_at_once_without_an_attempt() {
    let test = "a_disk_alarm_stops_the_relay_at_once_without_an_attempt";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let rabbitmq = receivers::RabbitMq::start().unwrap();
    let url = rabbitmq.url("relay").unwrap();
    let hands = Hands::on(&url).await;
    hands.queue("mails", &[]).await;
    let setup = setup().await;
    let client = &setup.client;
    let relay = Relay::to(RabbitMq::new(&url).unwrap());
    let relay = relay.start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    enqueue(client, &["mails"]).await;
    all_done(client).await;
    rabbitmq.set_disk_alarm(true).unwrap();
    enqueue(client, &["mails"; 40]).await;
    let blocked = async || {
        let status = relay.status();
        let error = status.last_error.unwrap_or_default();
        Ok(status.down_since.is_some() && error.contains("blocks publishers: low on disk"))
    };
    eventually(SOON, "it is noticed", blocked).await.unwrap();
    let connections = || {
        let all = rabbitmq.control(&["list_connections", "pid"]).unwrap();
        all.lines().filter(|line| line.starts_with('<')).count()
    };
    // Each batch in flight may have met the alarm on its own connection.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let (accepted, before) = (relay.status().accepted, connections());
    // During the alarm the broker is probed repeatedly, and stays blocked.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let status = relay.status();
    assert!(
        status.down_since.is_some() && status.accepted == accepted,
        "{status:?}"
    );
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    let counted: i64 = client.one(counted).await.unwrap();
    assert_eq!(counted, 0);
    // A connection that is closed while it is blocked remains until the alarm is over: probes must
    // not open new ones.
    assert!(connections() <= before, "{before} and more connections");
    rabbitmq.set_disk_alarm(false).unwrap();
    all_done(client).await;
    let mut ids = Vec::new();
    while let Some(message) = hands.take("mails").await {
        ids.push(message.properties.message_id().clone().unwrap().to_string());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 41);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_rabbitmq_password_never_leaks() {
    let test = "a_refused_rabbitmq_password_never_leaks";
    if !are_here(test, &[Receiver::RabbitMq]) {
        return;
    }
    let port = receivers::RabbitMq::shared().unwrap().port();
    let url = format!("amqp://guest:hunter2@127.0.0.1:{port}/relay");
    let destination = RabbitMq::new(&url).unwrap();
    let refused = destination.probe().await.unwrap_err();
    assert!(refused.contains("ACCESS_REFUSED"), "{refused}");
    assert!(!(refused + &destination.label()).contains("hunter2"));
}
