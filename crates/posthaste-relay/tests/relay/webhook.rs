//! Webhooks: the suite on a real HTTP server, the content of a request, and addresses that it may
//! not reach.

mod address_policy;
mod body;
mod half_open;
mod server;

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use posthaste::{Backoff, NewJob};
use posthaste_relay::{
    AddressPolicy, Destination, Mapping, Relay, RelayBuilder, Template, Webhook,
};
use posthaste_testkit::{PgVersion, Proxy, TestDb, TestResult, eventually, reaches};
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::conformance::{Received, Subject, conformance};
use crate::support::{SOON, all_done, count, database, unfinished, worker};
use server::Server;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

struct Hooks {
    server: Server,
    proxy: Proxy,
}

impl Hooks {
    fn webhook(&self) -> Webhook {
        webhook(&format!("http://{}/hook", self.proxy.address()))
    }
}

/// The tests' servers are on this machine.
fn address_policy() -> AddressPolicy {
    AddressPolicy::public().allow("127.0.0.1").unwrap()
}

fn webhook(url: &str) -> Webhook {
    Webhook::with_address_policy(client(), url, address_policy()).unwrap()
}

fn client() -> reqwest::ClientBuilder {
    // Built together with the program, the client supports TLS, and needs a provider even where it
    // uses none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

impl Subject for Hooks {
    const DEDUPLICATES: bool = false;

    async fn start() -> Option<Self> {
        let server = Server::start().await;
        let proxy = Proxy::start_raw(server.address()).await.unwrap();
        Some(Self { server, proxy })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(self.webhook())
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let taken = self.server.taken().into_iter();
        taken
            .map(|request| Received {
                id: request.header("webhook-id"),
                payload: request.json(),
            })
            .collect()
    }

    fn unacceptable(&self) -> Option<NewJob> {
        Some(NewJob::new("mail", &json!({ "unacceptable": true })).unwrap())
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        let status = refuse.then_some(StatusCode::SERVICE_UNAVAILABLE);
        self.server.answers(status);
        true
    }
}

conformance!(Hooks, and:
    a_permanently_rejected_message_does_not_affect_others,
    temporary_rejections_lose_nothing,
    jobs_of_one_key_arrive_in_order,
);

/// The same with one request at a time.
struct OneByOne(Hooks);

impl Subject for OneByOne {
    const DEDUPLICATES: bool = false;

    async fn start() -> Option<Self> {
        Hooks::start().await.map(Self)
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::new(self.0.webhook().requests(1))
    }

    fn proxy(&self) -> &Proxy {
        &self.0.proxy
    }

    async fn received(&self) -> Vec<Received> {
        self.0.received().await
    }
}

mod one_by_one {
    super::conformance!(super::OneByOne: messages_of_an_ordered_relay_arrive_in_order);
}

struct Setup {
    server: Server,
    db: TestDb,
    client: Client,
}

impl Setup {
    async fn new() -> Self {
        let server = Server::start().await;
        let db = database(PgVersion::any()).await;
        let client = db.client().await.unwrap();
        Self { server, db, client }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.server.address())
    }

    async fn work(&self, relay: RelayBuilder) -> (Relay, posthaste::WorkerHandle) {
        let quick = Duration::from_millis(50);
        let relay = relay.backoff(Backoff {
            base: quick,
            cap: quick,
        });
        let relay = relay.start().await.unwrap();
        let worker = worker(&self.db.pool(2).unwrap()).consumer("h", relay.clone());
        (relay, worker.start().await.unwrap())
    }

    async fn enqueue(&self, name: &str, kwargs: &Value) {
        let job = NewJob::new(name, kwargs).unwrap().queue("h");
        posthaste::enqueue(&self.client, &job).await.unwrap();
    }

    async fn counted(&self, name: &str) -> Option<i32> {
        let counted = "SELECT attempt FROM posthaste.job WHERE name = $1";
        let row = self.client.query_opt(counted, &[&name]).await.unwrap();
        row.map(|row| row.get(0))
    }
}

/// Each job sets its URL.
fn each(webhook: Webhook) -> RelayBuilder {
    let url = Template::parse("{kwargs.url}").unwrap();
    Relay::to(webhook).mapping(Mapping::default().queue(url))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_signed_and_carry_route_and_job_fields() {
    let setup = Setup::new().await;
    let webhook = webhook(&setup.url("hook")).secrets([SECRET.parse().unwrap()]);
    let mapping = Mapping::default()
        .header("authorization", Template::text("Bearer geheim"))
        .header("x-tenant", Template::parse("{kwargs.tenant}").unwrap())
        .payload(Template::parse(r#"{{"type":{json:kwargs.tenant}}}"#).unwrap());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let job = NewJob::new("mail.send", &json!({ "tenant": "Ä" })).unwrap();
    let job = job.queue("h").trace(format!("{parent} a=b, c=d"));
    posthaste::enqueue(&setup.client, &job).await.unwrap();
    let (_, worker) = setup.work(Relay::to(webhook).mapping(mapping)).await;
    all_done(&setup.client).await;
    worker.stop().await.unwrap();
    let request = setup.server.taken().remove(0);
    assert_eq!(request.json(), json!({ "type": "Ä" }));
    for (name, value) in [
        ("authorization", "Bearer geheim"),
        ("traceparent", parent),
        ("tracestate", "a=b, c=d"),
        ("content-type", "application/json"),
        ("posthaste-job-name", "mail.send"),
        ("idempotency-key", &request.header("webhook-id")),
    ] {
        assert_eq!(request.header(name), value);
    }
    // The delivery id is the only id: a restored database assigns job ids again.
    assert!(!request.headers.contains_key("posthaste-job-id"));
    let reader = standardwebhooks::Webhook::new(SECRET).unwrap();
    reader.verify(&request.body, &request.headers).unwrap();
    assert!(reader.verify(b"{}", &request.headers).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_endpoint_does_not_block_others() -> TestResult {
    let setup = Setup::new().await;
    let limit = Duration::from_millis(500);
    let webhook = Webhook::to_each(client(), address_policy())
        .unwrap()
        .time_limit(limit);
    let (relay, worker) = setup.work(each(webhook)).await;
    for n in 0..40 {
        let (name, path) = match n % 10 {
            3 => (format!("hang{n}"), "hang"),
            7 => (format!("gone{n}"), "gone"),
            _ => ("good".to_owned(), "hook"),
        };
        let url = match path {
            // No server listens there.
            "gone" => "http://127.0.0.1:1/".to_owned(),
            path => setup.url(path),
        };
        setup.enqueue(&name, &json!({ "url": url })).await;
    }
    eventually(SOON, "all others are taken", async || {
        let counted =
            setup.counted("hang3").await > Some(0) && setup.counted("gone37").await > Some(0);
        Ok(counted && setup.server.taken().len() == 32 && unfinished(&setup.client).await == 8)
    })
    .await?;
    let status = relay.status();
    assert_eq!((status.unavailable, status.down_since), (0, None));
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn per_job_addresses_do_not_wait_for_the_route_address() {
    let setup = Setup::new().await;
    let (relay, worker) = setup.work(each(webhook("http://nobody.invalid/"))).await;
    let url = setup.url("hook");
    setup.enqueue("m", &json!({ "url": url })).await;
    all_done(&setup.client).await;
    assert_eq!(relay.status().down_since, None);
    worker.stop().await.unwrap();
    // Messages to the destination's own address wait while it is down.
    let own = Relay::to(webhook("http://nobody.invalid/"));
    let (relay, worker) = setup.work(own).await;
    setup.enqueue("m", &json!({})).await;
    let is_down = async || Ok(relay.status().down_since.is_some());
    eventually(SOON, "it is down", is_down).await.unwrap();
    assert_eq!(setup.counted("m").await, Some(0));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_answered_before_the_timeout_are_not_resent() {
    let setup = Setup::new().await;
    let webhook = Webhook::to_each(client(), address_policy()).unwrap();
    for _ in 0..9 {
        let url = setup.url("hook");
        setup.enqueue("good", &json!({ "url": url })).await;
    }
    let url = setup.url("hang");
    setup.enqueue("hang", &json!({ "url": url })).await;
    let relay = each(webhook).time_limit(Duration::from_millis(500));
    let (_, worker) = setup.work(relay).await;
    let counted = async || Ok(setup.counted("hang").await > Some(0));
    eventually(SOON, "the last one is singled out", counted)
        .await
        .unwrap();
    assert_eq!(
        (setup.server.taken().len(), unfinished(&setup.client).await),
        (9, 1)
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_are_truncated_and_redirects_are_not_followed() {
    let setup = Setup::new().await;
    let webhook = Webhook::to_each(client(), address_policy()).unwrap();
    let (_, worker) = setup.work(each(webhook)).await;
    for path in ["endless", "moved", "wait", "404"] {
        let url = setup.url(path);
        setup.enqueue(path, &json!({ "url": url })).await;
    }
    eventually(SOON, "each has its outcome", async || {
        let mut counted = 0;
        for path in ["endless", "moved", "wait"] {
            counted += i32::from(setup.counted(path).await > Some(0));
        }
        Ok(counted == 3 && count(&setup.client, "discarded").await == 1)
    })
    .await
    .unwrap();
    let left = "SELECT name, last_error, scheduled_at > now() + interval '1 minute' \
                FROM posthaste.job ORDER BY name";
    let rows = setup.client.query(left, &[]).await.unwrap();
    let errors: Vec<(&str, &str, bool)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    assert_eq!(errors[0], ("404", "HTTP status 404", false));
    assert!(
        errors[1].1.starts_with("HTTP status 500: xxx"),
        "{errors:?}"
    );
    assert!(errors[1].1.len() < 2_000);
    assert!(
        errors[2].1.contains("redirects are not followed"),
        "{errors:?}"
    );
    assert_eq!(errors[3], ("wait", "HTTP status 429", true));
    assert_eq!(setup.server.taken().len(), 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_refusals_are_retried_if_configured() {
    let setup = Setup::new().await;
    let webhook = webhook(&setup.url("422")).again_on_client_errors();
    setup.enqueue("m", &json!({})).await;
    let (_, worker) = setup.work(Relay::to(webhook)).await;
    let counted = async || Ok(setup.counted("m").await > Some(1));
    eventually(SOON, "it is tried again", counted)
        .await
        .unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_concurrent_requests_never_exceed_the_limit() {
    let setup = Setup::new().await;
    for (requests, jobs) in [(1_000, 1_000), (60, 300)] {
        setup.server.holds(requests);
        let enqueue = "SELECT count(posthaste.enqueue('m', '{}', queue => 'h')) \
                       FROM generate_series(1, $1::int)";
        setup.client.execute(enqueue, &[&jobs]).await.unwrap();
        let limit = Duration::from_secs(240);
        let webhook = webhook(&setup.url("hold"))
            .requests(requests)
            .time_limit(limit);
        let relay = Relay::to(webhook)
            .batch(250)
            .concurrency(40)
            .time_limit(limit);
        let (_, worker) = setup.work(relay).await;
        let held = async || Ok(setup.server.most_at_once().try_into()?);
        reaches(
            SOON,
            "they are all in flight",
            requests.try_into().unwrap(),
            held,
        )
        .await
        .unwrap();
        all_done(&setup.client).await;
        assert_eq!(setup.server.most_at_once(), requests);
        worker.stop().await.unwrap();
    }
}

#[test]
fn labels_and_errors_keep_the_secrets_of_addresses() {
    let url = "https://ann:geheim@hooks.example.com/services/geheim?key=geheim";
    let webhook = Webhook::new(client(), url).unwrap();
    assert_eq!(webhook.label(), "webhook at https://hooks.example.com");
    for wrong in ["ftp://geheim/", "http://127.0.0.1/geheim", "geheim"] {
        let error = Webhook::new(client(), wrong).err().unwrap().to_string();
        assert!(!error.contains("geheim"), "{error}");
    }
}
