//! HTTP as a handler, against a real server on the loopback: its requests, and the meaning of the
//! answers.

mod endpoint;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{FutureExt as _, StreamExt as _};
use posthaste::__private::http::Turns;
use posthaste::{Backoff, Http, NewJob, QueueConfig, WorkerHandle, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::SemaphorePermit;
use tokio_postgres::Client;

use crate::support::{SOON, all_done, connected, count, unfinished, worker};

const SECRETS: [&str; 2] = [
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "whsec_Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=",
];
/// A back-off that no wait in these tests reaches.
const NEVER: Duration = Duration::from_secs(40_000);

type Seen = Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>;

/// Answers with the status in the path, and records its requests.
async fn serve() -> (String, Seen) {
    let seen = Seen::default();
    let routes = Router::new()
        .route("/{status}", post(answer))
        .route("/trap", get(|| async { "nobody follows" }))
        .with_state(Arc::clone(&seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (address, seen)
}

async fn answer(
    State(seen): State<Seen>,
    Path(status): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let asked = (status.clone(), headers, body);
    seen.lock().unwrap().push(asked);
    if status == "hang" {
        std::future::pending::<()>().await;
    }
    if status == "endless" {
        let begun = futures_util::stream::iter([Ok::<_, std::io::Error>("data: 1\n\n")]);
        let events = begun.chain(futures_util::stream::pending());
        return axum::body::Body::from_stream(events).into_response();
    }
    let (status, extra) = status.split_once('-').unwrap_or((&status, ""));
    let status = StatusCode::from_bytes(status.as_bytes()).unwrap();
    let mut answer = (status, "because").into_response();
    match extra {
        "seconds" => drop(
            answer
                .headers_mut()
                .insert(header::RETRY_AFTER, "120".parse().unwrap()),
        ),
        "date" => {
            let headers = answer.headers_mut();
            // An hour from now by the server's clock, which is decades slow.
            headers.insert(
                header::DATE,
                "Sun, 06 Nov 1994 08:00:00 GMT".parse().unwrap(),
            );
            headers.insert(
                header::RETRY_AFTER,
                "Sun, 06 Nov 1994 09:00:00 GMT".parse().unwrap(),
            );
        }
        "far" => drop(
            answer
                .headers_mut()
                .insert(header::RETRY_AFTER, "99999999".parse().unwrap()),
        ),
        "trap" => drop(
            answer
                .headers_mut()
                .insert(header::LOCATION, "/trap".parse().unwrap()),
        ),
        _ => {}
    }
    answer
}

fn http(url: &str) -> Http {
    // Built together with the program, the client supports TLS, and requires a provider even
    // without TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Http::new(reqwest::Client::builder().no_proxy(), url).unwrap()
}

/// Starts a worker with a handler of the same name for each of these paths.
async fn start(db: &TestDb, address: &str, paths: &[&str]) -> WorkerHandle {
    let queue = QueueConfig {
        backoff: Backoff {
            base: NEVER,
            cap: NEVER,
        },
        ..QueueConfig::new("default", 4)
    };
    let mut worker = worker(&db.pool(4).unwrap()).queue_config(queue);
    for path in paths {
        let handler = http(&format!("{address}/{path}")).handler();
        worker = worker.handler(*path, handler);
    }
    worker.start().await.unwrap()
}

async fn put(client: &Client, name: &str, kwargs: &Value) {
    enqueue(client, &NewJob::new(name, kwargs).unwrap())
        .await
        .unwrap();
}

async fn tried(client: &Client, jobs: i64) {
    eventually(SOON, "all were tried", async || {
        let row = client
            .one::<i64>("SELECT count(*) FROM posthaste.job WHERE attempt > 0")
            .await?;
        Ok(row == jobs && unfinished(client).await == jobs)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn response_classes_map_to_outcomes() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (address, seen) = serve().await;
    let paths = [
        "200", "204", "400", "408", "410", "422", "425", "429", "500", "599",
    ];
    let worker = start(&db, &address, &paths).await;
    for path in paths {
        put(&client, path, &json!({})).await;
    }
    tried(&client, 8).await;
    worker.stop().await?;
    assert_eq!(seen.lock().unwrap().len(), paths.len(), "each once");
    let rows = client
        .query(
            "SELECT name, state, last_error FROM posthaste.job ORDER BY name",
            &[],
        )
        .await?;
    for row in rows {
        let (name, state, error): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let is_discarded = ["400", "410", "422"].contains(&name);
        assert_eq!(state == "discarded", is_discarded, "{name} is {state}");
        assert!(error.contains(&name[..3]), "{error}");
        assert!(error.ends_with("because"), "{error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn success_statuses_count_despite_an_endless_body() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (address, seen) = serve().await;
    // Much longer than the test waits.
    let post = http(&format!("{address}/endless")).time_limit(SOON * 10);
    let worker = worker(&db.pool(2)?)
        .queue("default", 2)
        .handler("endless", post.handler())
        .start()
        .await?;
    put(&client, "endless", &json!({})).await;
    all_done(&client).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_honoured_and_bounded() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (address, _) = serve().await;
    let paths = ["429-seconds", "503-date", "503-far", "500"];
    let worker = start(&db, &address, &paths).await;
    for path in paths {
        put(&client, path, &json!({})).await;
    }
    tried(&client, 4).await;
    worker.stop().await?;
    let waits: Vec<(String, f64)> = client
        .rows(
            "SELECT name, extract(epoch FROM scheduled_at - enqueued_at)::float8 \
             FROM posthaste.job ORDER BY name",
        )
        .await?;
    for ((name, wait), (expected, least)) in waits.iter().zip([
        ("429-seconds", 120.0),
        ("500", NEVER.as_secs_f64() / 2.0),
        ("503-date", 3_600.0),
        ("503-far", 86_400.0),
    ]) {
        assert_eq!(name, expected);
        let most = if name == "500" { least * 2.0 } else { least } + SOON.as_secs_f64();
        assert!((least..most).contains(wait), "{name}: {wait}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_carry_the_job_and_a_verifiable_signature() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (address, seen) = serve().await;
    let handler = http(&format!("{address}/200"))
        .secrets(SECRETS.map(|secret| secret.parse().unwrap()))
        .handler();
    let worker = worker(&db.pool(4)?)
        .queue("default", 1)
        .handler("index.*", handler)
        .start()
        .await?;
    let job = NewJob::new("index.ü", &json!({ "id": 7, "text": "é" }))?;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let job = job.tag("50 %").trace(format!("{parent} a=b, c=d"));
    let id = enqueue(&client, &job).await?;
    all_done(&client).await;
    put(&client, "index.untraced", &json!({})).await;
    all_done(&client).await;
    worker.stop().await?;
    let row = client
        .query_one("SELECT posthaste.delivery_id($1)::text", &[&id.0])
        .await?;
    let delivery: &str = row.get(0);
    let seen = seen.lock().unwrap();
    let (_, headers, body) = &seen[0];
    for (name, value) in [
        ("content-type", "application/json"),
        ("posthaste-job-id", id.to_string().as_str()),
        ("posthaste-job-name", "index.%C3%BC"),
        ("posthaste-queue", "default"),
        ("posthaste-attempt", "1"),
        ("posthaste-tag", "50%20%25"),
        ("webhook-id", delivery),
        ("idempotency-key", delivery),
        ("traceparent", parent),
        ("tracestate", "a=b, c=d"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    for name in ["traceparent", "tracestate"] {
        assert!(!seen[1].1.contains_key(name), "{name} of a job without");
    }
    let sent: Value = serde_json::from_slice(body)?;
    assert_eq!(sent, json!({ "id": 7, "text": "é" }));
    for secret in SECRETS {
        let reader = standardwebhooks::Webhook::new(secret).unwrap();
        reader.verify(body, headers).unwrap();
        assert!(reader.verify(b"{}", headers).is_err(), "another body");
    }
    let stranger = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let stranger = standardwebhooks::Webhook::new(stranger).unwrap();
    assert!(stranger.verify(body, headers).is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn response_timeouts_count_an_attempt() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (address, _) = serve().await;
    let hang = http(&format!("{address}/hang")).time_limit(Duration::from_millis(200));
    let worker = worker(&db.pool(4)?)
        .queue_config(QueueConfig {
            backoff: Backoff {
                base: NEVER,
                cap: NEVER,
            },
            ..QueueConfig::new("default", 4)
        })
        .handler("hang", hang.handler())
        .start()
        .await?;
    put(&client, "hang", &json!({})).await;
    tried(&client, 1).await;
    worker.stop().await?;
    let error = "SELECT last_error FROM posthaste.job";
    let error: String = client.one(error).await?;
    assert!(error.starts_with("no answer in time"), "{error}");
    assert_eq!(count(&client, "dead").await, 0);
    Ok(())
}

/// Takes all permits that are free now; they are released with the answer.
fn at_once(turns: &Turns) -> Vec<SemaphorePermit<'_>> {
    std::iter::from_fn(|| turns.next().now_or_never().flatten()).collect()
}

#[test]
fn reduced_concurrency_recovers_to_its_setting() {
    let turns = Turns::new(4);
    let under_way = at_once(&turns);
    assert!(turns.lower());
    assert!(!turns.lower(), "it was logged");
    drop(under_way);
    assert_eq!(at_once(&turns).len(), 3);
    for _ in 0..24 {
        assert_eq!(at_once(&turns).len(), 3);
        turns.found();
    }
    for _ in 0..100 {
        assert_eq!(at_once(&turns).len(), 4);
        turns.found();
    }
    let under_way = at_once(&turns);
    assert!(turns.lower(), "it happens again, and is logged again");
    assert_eq!(under_way.len(), 4);
}
