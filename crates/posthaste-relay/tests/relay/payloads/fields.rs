//! Texts that jobs set in fields beside the payload: at every destination each arrives unchanged in
//! its field, or the job is rejected.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use posthaste_testkit::receivers::{self, Receiver, are_here};
use posthaste_testkit::{Sql as _, eventually, unique};
use rdkafka::admin::NewTopic;

use super::super::rabbitmq::{Hands, shared};
use super::super::{asynq, kafka, nats};
use super::*;
use crate::support::{SOON, number};

/// Inserted unescaped into a JSON string, it would end the field and begin others.
const TEXT: &str = r#"a","retry":0,"x":""#;

/// Texts that arrived: destination, field and text.
type Stands = Vec<(&'static str, &'static str, String)>;

/// Sends a job that sets the text as its kind, a header, its ordering key and any other of these
/// settings. Returns the delivery id, or the reason of its rejection, which the preview shows too.
async fn sent_with(settings: Value) -> Result<String, String> {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let enqueue = "SELECT posthaste.delivery_id(posthaste.enqueue('mail',
        jsonb_build_object('k', $1::text), queue => 'm', ordering_key => $1))::text";
    let row = client.query_one(enqueue, &[&TEXT]).await.unwrap();
    let turn = "SELECT posthaste.advance_ordering(10)";
    client.run(turn).await.unwrap();
    let id: String = row.get(0);
    let mut all = json!({
        "queue": "m", "kind": "{kwargs.k}", "headers": { "x": "{kwargs.k}" },
        "payload": "{json:kwargs.k}",
    });
    let all = all.as_object_mut().unwrap();
    all.extend(settings.as_object().unwrap().clone());
    if settings["to"]
        .as_str()
        .is_some_and(|to| to.starts_with("http"))
    {
        // A webhook has no kind.
        all.remove("kind");
    }
    let names_queue = settings["receiver_queue"] == "{kwargs.k}";
    let names_kind = all.get("kind").is_some_and(|kind| kind == "{kwargs.k}");
    let route = Route::read("m", &*all).unwrap();
    let shown = preview(&client, &route, 10).await.unwrap();
    let shown: Value = serde_json::from_str(&shown[0]).unwrap();
    let relay = route.relay().start().await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("m", relay);
    let worker = worker.start().await.unwrap();
    let left = "SELECT count(*) FROM posthaste.job j
        WHERE NOT EXISTS (SELECT FROM posthaste.dead d WHERE d.id = j.id)";
    eventually(SOON, "it is sent or refused", async || {
        Ok(number(&client, left).await == 0)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
    let why = "SELECT last_error FROM posthaste.dead";
    if let Some(refused) = client.query_opt(why, &[]).await.unwrap() {
        assert_eq!(shown["error"], refused.get::<_, String>(0));
        return Err(refused.get(0));
    }
    assert_eq!(shown["headers"]["x"], TEXT);
    assert_eq!(shown["payload"], TEXT);
    assert!(shown["kind"] == TEXT || !names_kind);
    assert!(shown["queue"] == TEXT || !names_queue);
    Ok(id)
}

/// Parses a JSON string.
fn text(json: &RawValue) -> String {
    read(json)
}

async fn redis(stands: &mut Stands) {
    let Some(proxied) = ProxiedRedis::start("fields to Redis").await else {
        return;
    };
    let to = |kind: &str| {
        let to = proxied.url().replace("redis", kind);
        json!({ "to": to, "receiver_queue": "{kwargs.k}" })
    };

    sent_with(to("sidekiq")).await.unwrap();
    let keys = [
        "queue",
        "class",
        "args",
        "jid",
        "created_at",
        "enqueued_at",
        "delivery_id",
        "x",
    ];
    let job = object(&proxied.list(&format!("queue:{TEXT}"))[0], &keys);
    for field in ["class", "queue", "x"] {
        stands.push(("Sidekiq", field, text(&job[field])));
    }
    stands.push((
        "Sidekiq",
        "args",
        read::<Vec<String>>(&job["args"]).remove(0),
    ));

    let id = sent_with(to("asynq")).await.unwrap();
    let tasks = proxied.list(&format!("asynq:{{{TEXT}}}:pending"));
    assert_eq!(tasks, [id.as_str()]);
    let task = asynq::fields(&proxied.redis, &format!("asynq:{{{TEXT}}}:t:{id}"));
    let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    stands.push(("asynq", "type", utf8(&task[&1])));
    stands.push(("asynq", "queue", utf8(&task[&4])));
    // A map entry: its key, and its value after its length.
    let header = utf8(&task[&15]);
    let value = header.strip_prefix("\n\u{1}x\u{12}").unwrap();
    stands.push(("asynq", "x", value[1..].to_owned()));

    let refused = sent_with(to("bullmq")).await.unwrap_err();
    assert!(refused.contains("name without a colon"), "{refused}");
    let to_mail =
        json!({ "to": proxied.url().replace("redis", "bullmq"), "receiver_queue": "mail" });
    let id = sent_with(to_mail).await.unwrap();
    let field = |name: &str| {
        let value = proxied
            .redis
            .ask(&["HGET", &format!("bull:mail:{id}"), name]);
        value.unwrap().as_str().unwrap().to_owned()
    };
    stands.push(("BullMQ", "name", field("name")));
    let options = ["jobId", "timestamp", "attempts", "removeOnComplete", "tm"];
    let options = object(&field("opts"), &options);
    let header = object(&text(&options["tm"]), &["x"]);
    stands.push(("BullMQ", "x", text(&header["x"])));

    sent_with(to("celery+redis")).await.unwrap();
    let task: Value = serde_json::from_str(&proxied.list(TEXT)[0]).unwrap();
    let describe = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let queue = &task["properties"]["delivery_info"]["routing_key"];
    stands.push(("Celery", "queue", describe(queue)));
    stands.push(("Celery", "task", describe(&task["headers"]["task"])));
    stands.push(("Celery", "x", describe(&task["headers"]["x"])));
    assert!(task["headers"]["retry"].is_null() && task["retry"].is_null());
}

async fn rabbitmq(stands: &mut Stands) {
    if !are_here("fields to RabbitMQ", &[Receiver::RabbitMq]) {
        return;
    }
    let hands = Hands::on(shared()).await;
    hands.queue(TEXT, &[]).await;
    let celery = shared().replacen("amqp", "celery+amqp", 1);
    for (name, settings) in [
        ("RabbitMQ", json!({ "to": shared() })),
        (
            "Celery on RabbitMQ",
            json!({ "to": celery, "receiver_queue": "{kwargs.k}" }),
        ),
    ] {
        sent_with(settings).await.unwrap();
        let message = hands.take(TEXT).await.expect(name);
        stands.push((name, "routing key", message.routing_key.to_string()));
        let headers = message.properties.headers().clone().unwrap();
        let fields = [("x", true), ("task", name != "RabbitMQ"), ("retry", false)];
        for (field, is_there) in fields {
            let value = headers.inner().get(field);
            assert_eq!(value.is_some(), is_there, "{name}: {field}");
            let value = value.and_then(|value| value.as_long_string());
            stands.extend(value.map(|value| (name, field, value.to_string())));
        }
    }
    hands.delete(TEXT).await;
}

async fn nats(stands: &mut Stands) {
    if !are_here("fields to NATS", &[Receiver::Nats]) {
        return;
    }
    let server = receivers::Nats::start().unwrap();
    let client = async_nats::connect(server.url()).await.unwrap();
    nats::stream(&client, "CREATE", "all", &json!({ "subjects": ["*"] })).await;
    let to = json!({ "to": server.url(), "stream": "all" });
    sent_with(to).await.unwrap();
    let get = client.request("$JS.API.DIRECT.GET.all", r#"{"seq":1}"#.into());
    let headers = get.await.unwrap().headers.unwrap();
    for field in ["Nats-Subject", "x"] {
        let value = headers.get(field).unwrap().as_str();
        stands.push(("NATS", field, value.to_owned()));
    }
}

async fn kafka(stands: &mut Stands) {
    if !are_here("fields to Kafka", &[Receiver::Kafka]) {
        return;
    }
    let servers = receivers::Kafka::shared().unwrap().bootstrap();
    let to = format!("kafka://{servers}");
    // No topic can have such a name.
    sent_with(json!({ "to": to })).await.unwrap_err();
    let topic = unique("fields");
    kafka::create(&servers, NewTopic::new(&topic, 1, kafka::ONE)).await;
    sent_with(json!({ "to": to, "kind": topic })).await.unwrap();
    let read = tokio::task::spawn_blocking(move || kafka::records(&servers, &topic));
    for record in read.await.unwrap() {
        use rdkafka::message::Message as _;
        let key = String::from_utf8(record.key().unwrap().to_vec()).unwrap();
        stands.push(("Kafka", "key", key));
        stands.push(("Kafka", "x", kafka::header(&record, "x")));
    }
}

async fn smtp(stands: &mut Stands) {
    if !are_here("fields to a mail server", &[Receiver::Smtp]) {
        return;
    }
    let server = receivers::Smtp::start().unwrap();
    let to = format!("smtp://127.0.0.1:{}", server.port());
    let mails = json!({ "to": to, "mail_from": "us@example.com", "mail_to": "them@example.com" });
    sent_with(mails).await.unwrap();
    let mail = server.effects().unwrap().remove(0);
    let describe = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    stands.push(("SMTP", "subject", describe(&mail.all["subject"])));
    stands.push(("SMTP", "x", describe(&mail.all["headers"]["x"])));
}

async fn webhook(stands: &mut Stands) {
    let taken: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let keep = Arc::clone(&taken);
    let answer = async move |headers: HeaderMap| keep.lock().unwrap().push(headers);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("http://{}/", listener.local_addr().unwrap());
    let routes = Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    // TLS providers must be installed from here on.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let to = json!({ "to": to, "networks": ["127.0.0.1"] });
    sent_with(to.clone()).await.unwrap();
    // A probe may have preceded the message.
    let messages = taken.lock().unwrap().clone();
    for message in messages.iter().filter(|one| one.contains_key("webhook-id")) {
        let header = message["x"].to_str().unwrap().to_owned();
        stands.push(("webhook", "x", header));
    }
    assert_eq!(stands.last().unwrap().0, "webhook");
    let mut elsewhere = to;
    elsewhere["receiver_queue"] = json!("{kwargs.k}");
    let refused = sent_with(elsewhere).await.unwrap_err();
    assert!(refused.contains("must be http"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_text_cannot_inject_fields_at_any_destination() {
    let mut stands = Stands::new();
    redis(&mut stands).await;
    rabbitmq(&mut stands).await;
    nats(&mut stands).await;
    kafka(&mut stands).await;
    smtp(&mut stands).await;
    webhook(&mut stands).await;
    for (destination, field, is) in &stands {
        assert_eq!(is, TEXT, "{destination}: {field}");
    }
    assert!(!stands.is_empty());
}
