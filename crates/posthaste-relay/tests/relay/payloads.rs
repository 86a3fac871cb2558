//! Payloads that are not JSON, resemble it, or try to break out of their field: each arrives as one
//! value, and the envelope around it is unchanged.

mod brokers;
mod fields;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthaste_relay::{Route, preview};
use posthaste_testkit::{PgVersion, Sql as _};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::redis::ProxiedRedis;
use crate::support::{all_done, database, worker};

/// An object that preserves both values of a key that appears twice.
struct Pairs(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Pairs;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Pairs, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(All)
    }
}

/// Parses an object that has exactly these keys, each once, in any order.
fn object(json: &str, keys: &[&str]) -> BTreeMap<String, Box<RawValue>> {
    let Pairs(pairs) = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    let mut keys = keys.to_vec();
    names.sort_unstable();
    keys.sort_unstable();
    assert_eq!(names, keys, "{json}");
    pairs.into_iter().collect()
}

fn read<T: serde::de::DeserializeOwned>(json: &RawValue) -> T {
    serde_json::from_str(json.get()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Returns payloads for the outbox, and the value that a receiver of JSON reads.
fn payloads() -> Vec<(Vec<u8>, Value)> {
    let texts = [
        r#"0],"class":"Charge","retry":false,"args":[666"#,
        r#"0}, {"callbacks": 7}, {"chain": [1]}], [[], {"#,
        r#"1,"b":2"#,
        "plain text",
        "",
        " ",
        "{",
        "\"",
        "]",
        "[1] 2",
        "{\"args\": [1]} x",
        "{\"args\": [1}",
        "nul",
        "NaN",
        "-",
        "01",
        "'a'",
        "\u{feff}1",
        "\u{1}\u{8}\u{7f}\r\n\t\"\\ü\u{2028}",
        "\"\u{1}\"",
    ];
    let texts = texts.map(|text| (text.as_bytes().to_vec(), json!(text)));
    let long = ["x".repeat((1 << 20) - 200), "\"".repeat(100_000)];
    let long = long.map(|text| (text.as_bytes().to_vec(), json!(text)));
    let json = [
        json!(null),
        json!(7),
        json!("a text"),
        json!([1, [2]]),
        json!({ "a": "}" }),
        json!({}),
    ];
    let json = json.map(|value| (value.to_string().into_bytes(), value));
    let lines = (b" {\"a\":\r\n[1,\n2]}\n".to_vec(), json!({ "a": [1, 2] }));
    let bytes = [
        (vec![0x88, 0x12], json!("8812")),
        (vec![0x7b, 0, 0x7d], json!("7b007d")),
        (vec![0xff; 1000], json!("ff".repeat(1000))),
    ];
    let all = texts.into_iter().chain(long).chain(json);
    all.chain([lines]).chain(bytes).collect()
}

/// Returns whether the database stores it as text: valid UTF-8 without NUL.
pub(super) fn is_text(payload: &[u8]) -> bool {
    !payload.contains(&0) && std::str::from_utf8(payload).is_ok()
}

/// A payload in the outbox.
pub(super) struct Put {
    pub(super) payload: Vec<u8>,
    /// The value that a receiver of JSON must read.
    pub(super) read: Value,
    /// The payload in the preview.
    shown: Box<RawValue>,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    payload: Box<RawValue>,
}

impl Put {
    /// Returns whether the preview showed these bytes: JSON unchanged except for line breaks that
    /// would end a line, text as a string, other bytes as hexadecimal digits.
    pub(super) fn is_shown_as(&self, sent: &[u8]) -> bool {
        let text = std::str::from_utf8(sent).ok().filter(|_| is_text(sent));
        let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
        match text {
            Some(text) if is_json(text) => {
                let blank = [' ', '\t', '\r', '\n'];
                let in_a_line = text.trim_matches(blank).replace(['\n', '\r'], " ");
                self.shown.get() == in_a_line
            }
            Some(text) => read::<String>(&self.shown) == text,
            None => read::<String>(&self.shown) == hex(sent),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends all payloads by the outbox over this route; returns them by their delivery ids.
pub(super) async fn sent(settings: Value) -> BTreeMap<String, Put> {
    sent_below(usize::MAX, settings).await
}

/// As [`sent`], without payloads of this size or more.
async fn sent_below(size: usize, settings: Value) -> BTreeMap<String, Put> {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let all = "INSERT INTO posthaste.route (pattern, queue) VALUES ('*', 'm')";
    client.run(all).await.unwrap();
    let insert =
        "INSERT INTO posthaste.outbox (type, payload) VALUES ('mail', $1) RETURNING id::text";
    let mut put = BTreeMap::new();
    let small = payloads().into_iter();
    for (payload, read) in small.filter(|(payload, _)| payload.len() < size) {
        let id: String = client.one_with(insert, &[&payload]).await.unwrap();
        put.insert(id, (payload, read));
    }
    let route = Route::read("m", settings.as_object().unwrap()).unwrap();
    let lines = preview(&client, &route, 1_000).await.unwrap().into_iter();
    let mut shown: BTreeMap<String, Box<RawValue>> = lines
        .map(|line| {
            let Line { id, payload } = serde_json::from_str(&line).expect("a message");
            (id, payload)
        })
        .collect();
    let relay = route.relay().start().await.unwrap();
    let worker = worker(&db.pool(2).unwrap()).consumer("m", relay);
    let worker = worker.start().await.unwrap();
    all_done(&client).await;
    worker.stop().await.unwrap();
    let put = put.into_iter().map(|(id, (payload, read))| {
        let shown = shown.remove(&id).expect("it was shown");
        let put = Put {
            payload,
            read,
            shown,
        };
        (id, put)
    });
    put.collect()
}

/// Asserts that each arrived as the value that a receiver must read, and as the preview showed it,
/// except for line breaks that would end a line.
fn all_read(
    mut put: BTreeMap<String, Put>,
    arrived: impl Iterator<Item = (String, Box<RawValue>)>,
) {
    for (id, arrived) in arrived {
        let one = put.remove(&id).expect("it was put and comes once");
        assert!(read::<Value>(&arrived) == one.read, "{}", one.read);
        let in_a_line = arrived.get().replace(['\n', '\r'], " ");
        assert!(one.shown.get() == in_a_line, "{}", one.read);
    }
    assert_eq!(put.len(), 0, "some never came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidekiq_runs_the_class_with_any_payload_as_one_argument() {
    let Some(proxied) = ProxiedRedis::start("payloads to Sidekiq").await else {
        return;
    };
    let to = proxied.url().replace("redis", "sidekiq");
    let put = sent(json!({ "to": to, "queue": "m", "class": "MailJob" })).await;
    let jobs = proxied.list("queue:default").into_iter();
    let arrived = jobs.map(|job| {
        let keys = [
            "queue",
            "class",
            "args",
            "jid",
            "created_at",
            "enqueued_at",
            "delivery_id",
        ];
        let job = object(&job, &keys);
        let (class, queue) = (job["class"].get(), job["queue"].get());
        assert_eq!((class, queue), ("\"MailJob\"", "\"default\""));
        let mut args: Vec<Box<RawValue>> = read(&job["args"]);
        assert_eq!(args.len(), 1);
        (read(&job["delivery_id"]), args.remove(0))
    });
    all_read(put, arrived);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bullmq_receives_any_payload_as_job_data() {
    let Some(proxied) = ProxiedRedis::start("payloads to BullMQ").await else {
        return;
    };
    let to = proxied.url().replace("redis", "bullmq");
    let put = sent(json!({ "to": to, "queue": "m", "receiver_queue": "mail" })).await;
    let ids = proxied.list("bull:mail:wait").into_iter();
    let arrived = ids.map(|id| {
        let field = |name: &str| {
            let get = ["HGET", &format!("bull:mail:{id}"), name];
            let value = proxied.redis.ask(&get).unwrap();
            value.as_str().unwrap().to_owned()
        };
        let options = ["jobId", "timestamp", "attempts", "removeOnComplete"];
        object(&field("opts"), &options);
        let data = RawValue::from_string(field("data")).expect("one value");
        (id, data)
    });
    all_read(put, arrived);
}

/// Returns the only argument of a task's body.
fn only_argument(body: &RawValue) -> Box<RawValue> {
    let [args, kwargs, rest]: [Box<RawValue>; 3] = read(body);
    let nothing = json!({ "callbacks": null, "errbacks": null, "chain": null, "chord": null });
    assert_eq!(read::<Value>(&rest), nothing);
    let mut args: Vec<Box<RawValue>> = read(&args);
    match (args.len(), kwargs.get()) {
        (1, "{}") => args.remove(0),
        (0, _) => kwargs,
        _ => panic!("{body}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn celery_messages_hold_any_payload_as_one_value() {
    let Some(proxied) = ProxiedRedis::start("payloads to Celery").await else {
        return;
    };
    let to = proxied.url().replace("redis", "celery+redis");
    let put = sent(json!({ "to": to, "queue": "m", "task": "mail" })).await;
    let tasks = proxied.list("celery").into_iter();
    let arrived = tasks.map(|task| {
        let keys = [
            "body",
            "content-encoding",
            "content-type",
            "headers",
            "properties",
        ];
        let task = object(&task, &keys);
        let headers: Value = read(&task["headers"]);
        assert_eq!(headers["task"], "mail");
        let body = STANDARD.decode(read::<String>(&task["body"])).unwrap();
        let body = RawValue::from_string(String::from_utf8(body).unwrap()).unwrap();
        let only = only_argument(&body);
        (headers["id"].as_str().unwrap().to_owned(), only)
    });
    all_read(put, arrived);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynq_receives_any_payload_unchanged() {
    let Some(proxied) = ProxiedRedis::start("payloads to asynq").await else {
        return;
    };
    let to = proxied.url().replace("redis", "asynq");
    let put = sent(json!({ "to": to, "queue": "m" })).await;
    let ids = proxied.list("asynq:{default}:pending");
    assert_eq!(ids.len(), put.len());
    for id in ids {
        let task = super::asynq::fields(&proxied.redis, &format!("asynq:{{default}}:t:{id}"));
        // Protobuf omits an empty field.
        let payload = task.get(&2).map_or(&[][..], Vec::as_slice);
        assert!(payload == put[&id].payload, "{}", put[&id].read);
        assert!(put[&id].is_shown_as(payload), "{}", put[&id].read);
        assert_eq!(task[&1], b"mail");
    }
}
