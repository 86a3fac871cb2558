//! The same payloads at brokers and at a mail server, whose messages have a body of any bytes.

use std::collections::BTreeSet;

use posthaste_testkit::receivers::{self, Receiver, are_here};
use posthaste_testkit::unique;
use rdkafka::admin::NewTopic;

use super::super::rabbitmq::{Hands, shared};
use super::super::{kafka, nats};
use super::*;

/// Brokers accept slightly less than 1 MiB, including the headers.
const LARGEST: usize = 1_000_000;

/// Asserts that each arrived once, with the bytes that the preview showed, and with its type if the
/// format has one.
fn all_came(
    mut put: BTreeMap<String, Put>,
    arrived: impl IntoIterator<Item = (String, Vec<u8>, Option<String>)>,
) {
    for (id, body, kind) in arrived {
        let one = put.remove(&id).expect("it was put and comes once");
        assert!(body == one.payload, "{}", one.read);
        assert!(one.is_shown_as(&body), "{}", one.read);
        let is_json = serde_json::from_slice::<&RawValue>(&body).is_ok();
        let is = match (is_json, is_text(&body)) {
            (true, _) => "application/json",
            (_, true) => "text/plain",
            _ => "application/octet-stream",
        };
        assert!(kind.is_none_or(|kind| kind == is), "{}", one.read);
    }
    assert_eq!(put.len(), 0, "some never came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_receives_any_payload_with_its_content_type() {
    if !are_here("payloads to RabbitMQ", &[Receiver::RabbitMq]) {
        return;
    }
    let (hands, queue) = (Hands::on(shared()).await, unique("payloads"));
    hands.queue(&queue, &[]).await;
    let put = sent_below(
        LARGEST,
        json!({ "to": shared(), "queue": "m", "routing_key": queue }),
    );
    let put = put.await;
    let mut arrived = Vec::new();
    while let Some(message) = hands.take(&queue).await {
        let error = &message.properties;
        let text = |of: &Option<lapin::types::ShortString>| of.as_ref().map(ToString::to_string);
        let (id, kind) = (text(error.message_id()), text(error.content_type()));
        assert_eq!(text(error.kind()).as_deref(), Some("mail"));
        arrived.push((id.unwrap(), message.data.clone(), kind));
    }
    all_came(put, arrived);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_receives_any_payload_unchanged() {
    if !are_here("payloads to NATS", &[Receiver::Nats]) {
        return;
    }
    let server = receivers::Nats::start().unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    nats::stream(&client, "CREATE", "mail", &json!({})).await;
    let put = sent_below(
        LARGEST,
        json!({ "to": server.url(), "queue": "m", "stream": "mail" }),
    )
    .await;
    let info = nats::api(&client, "STREAM.INFO.mail", &json!({})).await;
    let mut arrived = Vec::new();
    for seq in 1..=info["state"]["last_seq"].as_u64().unwrap() {
        let get = json!({ "seq": seq }).to_string();
        let message = client.request("$JS.API.DIRECT.GET.mail", get.into()).await;
        let message = message.unwrap();
        let headers = message.headers.unwrap();
        let header = |name: &str| headers.get(name).unwrap().as_str().to_owned();
        assert_eq!(header("Nats-Subject"), "mail");
        arrived.push((header("Nats-Msg-Id"), message.payload.to_vec(), None));
    }
    all_came(put, arrived);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_receives_any_payload_unchanged() {
    if !are_here("payloads to Kafka", &[Receiver::Kafka]) {
        return;
    }
    let (servers, topic) = (
        receivers::Kafka::shared().unwrap().bootstrap(),
        unique("payloads"),
    );
    kafka::create(&servers, NewTopic::new(&topic, 1, kafka::ONE)).await;
    let to = format!("kafka://{servers}");
    let put = sent_below(LARGEST, json!({ "to": to, "queue": "m", "topic": topic })).await;
    let read = tokio::task::spawn_blocking(move || kafka::records(&servers, &topic));
    let arrived = read.await.unwrap().into_iter().map(|record| {
        use rdkafka::message::Message as _;
        let body = record.payload().unwrap_or_default().to_vec();
        (kafka::header(&record, "id"), body, None)
    });
    all_came(put, arrived);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn celery_messages_on_rabbitmq_carry_any_payload() {
    if !are_here("payloads to Celery on RabbitMQ", &[Receiver::RabbitMq]) {
        return;
    }
    let (hands, queue) = (Hands::on(shared()).await, unique("payloads"));
    hands.queue(&queue, &[]).await;
    let to = shared().replacen("amqp", "celery+amqp", 1);
    let put = sent_below(
        LARGEST,
        json!({ "to": to, "queue": "m", "receiver_queue": queue, "task": "mail" }),
    );
    let put = put.await;
    let mut arrived = Vec::new();
    while let Some(message) = hands.take(&queue).await {
        let id = message.properties.correlation_id().clone().unwrap();
        let headers = message.properties.headers().clone().unwrap();
        let task = headers.inner().get("task").cloned();
        assert_eq!(task.unwrap().as_long_string().unwrap().to_string(), "mail");
        let body = String::from_utf8(message.data.clone()).unwrap();
        let body = RawValue::from_string(body).expect("one value");
        arrived.push((id.to_string(), only_argument(&body)));
    }
    all_read(put, arrived.into_iter());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_contain_any_payload_as_text_only() {
    if !are_here("payloads to a mail server", &[Receiver::Smtp]) {
        return;
    }
    let server = receivers::Smtp::start().unwrap();
    let to = format!("smtp://127.0.0.1:{}", server.port());
    let mut put = sent(json!({
        "to": to, "queue": "m", "mail_from": "us@example.com", "mail_to": "them@example.com",
    }))
    .await;
    // A mail consists of lines, and the last may lack an end.
    let lines = |text: &str| {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        text.trim_end_matches('\n').to_owned()
    };
    for mail in server.effects().unwrap() {
        let id = mail.id.trim_start_matches('<').split('@').next().unwrap();
        let one = put.remove(id).expect("it was put and comes once");
        let text = mail.all["text"].as_str().unwrap();
        let is = match is_text(&one.payload) {
            true => String::from_utf8(one.payload.clone()).unwrap(),
            false => hex(&one.payload),
        };
        assert!(lines(text) == lines(&is), "{}: {text:.200}", one.read);
        assert!(one.is_shown_as(&one.payload), "{}", one.read);
        assert_eq!(mail.all["subject"], "mail");
        assert_eq!(mail.args, json!(["them@example.com"]));
        let headers = mail.all["headers"].as_object().unwrap();
        let names: BTreeSet<String> = headers.keys().map(|name| name.to_lowercase()).collect();
        let ours = [
            "content-transfer-encoding",
            "content-type",
            "date",
            "from",
            "message-id",
            "mime-version",
            "subject",
            "to",
        ];
        assert!(
            names.iter().all(|name| ours.contains(&name.as_str())),
            "{names:?}"
        );
    }
    assert_eq!(put.len(), 0, "some never came");
}
