//! NATS: the suite on a real JetStream, messages that its streams refuse, and an independent
//! consumer.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use posthaste::NewJob;
use posthaste_relay::{Answer, Destination, Mapping, Message, Nats, Relay, Template};
use posthaste_testkit::receivers::{self, Receiver, Worker, are_here};
use posthaste_testkit::{Proxy, Sql as _, TestResult, eventually};
use serde_json::{Value, json};

use super::conformance::{Received, Subject, conformance};
use super::{enqueue, outcome_of, setup};
use crate::support::{SOON, all_done, count, unfinished};

/// The shortest duplicate window that is not refused, in nanoseconds.
const DAY: u64 = 24 * 3600 * 1_000_000_000;

/// Calls JetStream's API.
pub(super) async fn api(client: &Client, what: &str, request: &Value) -> Value {
    let subject = format!("$JS.API.{what}");
    let reply = client.request(subject, request.to_string().into()).await;
    let reply: Value = serde_json::from_slice(&reply.unwrap().payload).unwrap();
    assert_eq!(reply["error"], Value::Null, "{what}");
    reply
}

pub(super) async fn stream(client: &Client, verb: &str, name: &str, config: &Value) {
    let mut whole = json!({ "name": name, "subjects": [name, format!("{name}.>")],
        "storage": "file", "allow_direct": true, "duplicate_window": DAY });
    let config = config.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(config);
    api(client, &format!("STREAM.{verb}.{name}"), &whole).await;
}

struct Stream {
    nats: receivers::Nats,
    client: Client,
    proxy: Proxy,
}

impl Subject for Stream {
    const DEDUPLICATES: bool = true;
    /// A message's headers add to its payload, and the server accepts 1 MiB in total.
    const LARGEST: usize = (1 << 20) - 1000;

    async fn start() -> Option<Self> {
        if !are_here("nats", &[Receiver::Nats]) {
            return None;
        }
        let nats = receivers::Nats::start().unwrap();
        let client = async_nats::connect(nats.url()).await.unwrap();
        stream(&client, "CREATE", "mail", &json!({})).await;
        let target = ([127, 0, 0, 1], nats.port()).into();
        let proxy = Proxy::start_raw(target).await.unwrap();
        Some(Self {
            nats,
            client,
            proxy,
        })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let url = format!("nats://{}", self.proxy.address());
        Arc::new(Nats::new(&url).unwrap().stream("mail"))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        assert!(self.nats.pid().is_some());
        let info = api(&self.client, "STREAM.INFO.mail", &json!({})).await;
        let of = |which: &str| info["state"][which].as_u64().unwrap();
        let mut received = Vec::new();
        for seq in of("first_seq")..=of("last_seq") {
            let request = json!({ "seq": seq }).to_string();
            let message = self
                .client
                .request("$JS.API.DIRECT.GET.mail", request.into());
            let message = message.await.unwrap();
            let headers = message.headers.unwrap();
            received.push(Received {
                id: headers.get("Nats-Msg-Id").unwrap().as_str().to_owned(),
                payload: serde_json::from_slice(&message.payload).unwrap(),
            });
        }
        received
    }

    fn unacceptable(&self) -> Option<NewJob> {
        let text = "x".repeat((1 << 20) - 14);
        Some(NewJob::new("mail", &json!({ "text": text })).unwrap())
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        // The first message takes the only place.
        if refuse {
            let full = json!({ "discard": "new", "max_msgs": 1 });
            stream(&self.client, "UPDATE", "mail", &full).await;
            let first = json!({ "n": "first" }).to_string();
            self.client.request("mail", first.into()).await.unwrap();
        } else {
            api(&self.client, "STREAM.PURGE.mail", &json!({})).await;
            stream(
                &self.client,
                "UPDATE",
                "mail",
                &json!({ "discard": "new", "max_msgs": -1 }),
            )
            .await;
        }
        true
    }
}

conformance!(Stream, and:
    a_permanently_rejected_message_does_not_affect_others,
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_consumer_reads_duplicates_once() {
    let test = "a_stream_consumer_reads_duplicates_once";
    if !are_here(test, &[Receiver::Nats, Receiver::Celery]) {
        return;
    }
    let nats = receivers::Nats::start().unwrap();
    let consumer = Worker::nats(&nats.url(), "mails", Duration::from_secs(24 * 3600)).unwrap();
    let setup = setup().await;
    let client = &setup.client;
    let enqueue = r#"SELECT posthaste.delivery_id(
                       posthaste.enqueue('sent', '{"to": "ada"}', queue => 'mail',
                                         trace => $1))::text"#;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let id: String = client.one_with(enqueue, &[&trace]).await.unwrap();
    let mapping = Mapping::default()
        .kind(Template::parse("mails.{name}").unwrap())
        .header("Tenant", Template::text("acme"));
    let destination = Nats::new(&nats.url()).unwrap().stream("mails");
    // No effect is confirmed, so the message is sent again.
    let lease = Duration::from_millis(300);
    let relay = Relay::to(destination)
        .mapping(mapping)
        .ack(posthaste_relay::Ack::Confirmed { lease });
    let relay = relay.start().await.unwrap();
    let worker = setup.consumer(relay.clone()).await;
    let twice = async || Ok(relay.status().accepted > 1);
    eventually(SOON, "it is sent twice", twice).await.unwrap();
    let done = "SELECT posthaste.confirm($1::text::uuid)";
    client.execute(done, &[&id]).await.unwrap();
    all_done(client).await;
    let effects = consumer.wait_for(1, SOON).await.unwrap();
    assert_eq!(effects.len(), 1);
    assert_eq!((&effects[0].id, &*effects[0].name), (&id, "mails.sent"));
    assert_eq!(effects[0].args, json!({ "to": "ada" }));
    assert_eq!(effects[0].all["headers"]["Tenant"], "acme");
    assert_eq!(effects[0].all["headers"]["traceparent"], trace);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subjects_without_a_stream_wait_and_empty_subjects_are_rejected() {
    let test = "subjects_without_a_stream_wait_and_empty_subjects_are_rejected";
    if !are_here(test, &[Receiver::Nats]) {
        return;
    }
    let nats = receivers::Nats::start().unwrap();
    let hands = async_nats::connect(nats.url()).await.unwrap();
    stream(&hands, "CREATE", "here", &json!({})).await;
    let setup = setup().await;
    let client = &setup.client;
    enqueue(client, &["here", "missing", "no subject", "here"]).await;
    let quick = Duration::from_millis(200);
    let relay = Relay::to(Nats::new(&nats.url()).unwrap())
        .allow_unsafe("stream")
        .backoff(posthaste::Backoff {
            base: quick,
            cap: quick,
        });
    let worker = setup.relay(relay).await;
    let is_reported = async || {
        let outcome = outcome_of(client, "missing").await;
        let is_expected = |error: String| error == "NATS has no stream for the subject \"missing\"";
        let is_reported = outcome
            .is_some_and(|(_, counted, error)| counted > 0 && error.is_some_and(is_expected));
        Ok(is_reported && count(client, "discarded").await == 1 && unfinished(client).await == 2)
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    stream(&hands, "CREATE", "missing", &json!({})).await;
    let only = async || Ok(unfinished(client).await == 1);
    eventually(SOON, "it is taken", only).await.unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_stream_settings_are_refused_by_name() {
    let test = "unsafe_stream_settings_are_refused_by_name";
    if !are_here(test, &[Receiver::Nats]) {
        return;
    }
    let nats = receivers::Nats::start().unwrap();
    let hands = async_nats::connect(nats.url()).await.unwrap();
    let usual = json!({ "duplicate_window": 120_000_000_000_u64 });
    stream(&hands, "CREATE", "usual", &usual).await;
    stream(&hands, "CREATE", "memory", &json!({ "storage": "memory" })).await;
    stream(&hands, "CREATE", "good", &json!({})).await;
    for (name, setting) in [("usual", "duplicate_window"), ("memory", "storage")] {
        let relay = || Relay::to(Nats::new(&nats.url()).unwrap().stream(name));
        let refused = relay().start().await.err().unwrap().to_string();
        assert!(refused.contains(&format!("{setting}: is ")), "{refused}");
        assert!(relay().allow_unsafe(setting).start().await.is_ok());
    }
    let unknown = Relay::to(Nats::new(&nats.url()).unwrap());
    let refused = unknown.start().await.err().unwrap().to_string();
    assert!(refused.contains("stream: is not named"), "{refused}");
    let good = Relay::to(Nats::new(&nats.url()).unwrap().stream("good"));
    assert!(good.start().await.is_ok());
}

#[test]
fn the_nats_password_never_leaks() {
    let destination = Nats::new("nats://ada:hunter2@nats:4222,nats://token@other").unwrap();
    assert_eq!(destination.label(), "nats at nats:4222,other:4222");
    let wrong = Nats::new("gopher://ada:hunter2@nats:4222").err();
    assert!(!wrong.unwrap().to_string().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_come_from_the_address() {
    if !are_here("credentials_come_from_the_address", &[Receiver::Nats]) {
        return;
    }
    let named = ["--user", "shop", "--pass", "ge/heim@1"];
    let nats = receivers::Nats::start_with(&named).unwrap();
    let of =
        |port: u16, login: &str| Nats::new(&format!("nats://{login}127.0.0.1:{port}")).unwrap();
    let there = of(nats.port(), "shop:ge%2Fheim%401@").probe().await;
    assert_eq!(there, Ok(()));
    for wrong in ["", "shop:geheim@", "token@"] {
        let refused = of(nats.port(), wrong).probe().await.unwrap_err();
        assert!(refused.contains("authorization"), "{wrong}: {refused}");
    }
    let nats = receivers::Nats::start_with(&["--auth", "to/ken"]).unwrap();
    assert_eq!(of(nats.port(), "to%2Fken@").probe().await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaderless_stream_counts_no_attempt_and_a_missing_one_does() -> TestResult {
    let test = "a_leaderless_stream_counts_no_attempt_and_a_missing_one_does";
    if !are_here(test, &[Receiver::Nats]) {
        return Ok(());
    }
    let mut cluster = Vec::from(receivers::Nats::start_cluster().unwrap());
    let client = async_nats::connect(cluster[0].url()).await?;
    let request = json!({ "name": "mail", "subjects": ["mail"], "storage": "file" });
    let mut leader = String::new();
    // The cluster has no leader at first.
    eventually(SOON, "a stream is created", async || {
        let request = request.to_string().into();
        let Ok(reply) = client.request("$JS.API.STREAM.CREATE.mail", request).await else {
            return Ok(false);
        };
        let reply: Value = serde_json::from_slice(&reply.payload)?;
        leader = reply["cluster"]["leader"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(!leader.is_empty())
    })
    .await?;
    let at: usize = leader.trim_start_matches('n').parse()?;
    drop(cluster.remove(at));
    let nats = Nats::new(&cluster[0].url()).unwrap().stream("mail");
    let sent = async |kind: &str| {
        let message = Message::new(uuid::Uuid::new_v4(), kind, "{}");
        nats.send(&[message]).await.remove(0)
    };
    // The server answers late until the others have noticed it.
    eventually(SOON, "it is known that it has no leader", async || {
        let sent = tokio::time::timeout(Duration::from_secs(2), sent("mail")).await;
        let is_full = |answer: &Answer| {
            matches!(answer, Answer::Backpressure { reason, .. }
            if reason.to_string().contains("no leader"))
        };
        let Ok(answer) = sent else { return Ok(false) };
        assert!(
            !matches!(answer, Answer::Retry { .. } | Answer::Accepted),
            "{answer:?}"
        );
        Ok(is_full(&answer))
    })
    .await?;
    let unknown = sent("nobody.takes.this").await;
    assert!(matches!(unknown, Answer::Retry { .. }), "{unknown:?}");
    Ok(())
}
