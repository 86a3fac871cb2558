//! Metrics and spans as received by an OpenTelemetry collector.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use posthaste_testkit::{Child, Sql as _, TestDb, eventually, number};
use prost::Message as _;
use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::stage::{self, BOUND, Stage};

mod spans;

/// Attributes by name.
type Named = BTreeMap<String, String>;

fn named(all: &[KeyValue]) -> Named {
    let text = |one: &KeyValue| match one.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    };
    let all = all.iter();
    all.map(|one| (one.key.clone(), text(one).unwrap_or_default()))
        .collect()
}

/// A point of a metric: its name, its attributes, and its value or the number of recorded values.
type Point = (String, Named, f64);

/// A collector with the data that it received.
struct Collector {
    url: String,
    spans: Mutex<mpsc::UnboundedReceiver<Span>>,
    points: Arc<std::sync::Mutex<Vec<Point>>>,
    resource: Arc<std::sync::Mutex<Named>>,
    requests: Arc<AtomicUsize>,
    /// One permit for each response that the collector may send.
    answers: Arc<Semaphore>,
}

#[derive(Clone)]
struct Taken {
    spans: mpsc::UnboundedSender<Span>,
    points: Arc<std::sync::Mutex<Vec<Point>>>,
    resource: Arc<std::sync::Mutex<Named>>,
    requests: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
}

async fn traces(State(taken): State<Taken>, body: Bytes) {
    taken.requests.fetch_add(1, Ordering::SeqCst);
    let _turn = taken.answers.acquire().await;
    let request = ExportTraceServiceRequest::decode(body).unwrap_or_default();
    for of in request.resource_spans {
        let resource = of.resource.unwrap_or_default();
        *taken
            .resource
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = named(&resource.attributes);
        for span in of.scope_spans.into_iter().flat_map(|one| one.spans) {
            let _ = taken.spans.send(span);
        }
    }
}

async fn metrics(State(taken): State<Taken>, body: Bytes) {
    let _turn = taken.answers.acquire().await;
    let request = ExportMetricsServiceRequest::decode(body).unwrap_or_default();
    let of = request.resource_metrics.into_iter();
    let of = of.flat_map(|one| one.scope_metrics);
    let mut points = Vec::new();
    for metric in of.flat_map(|one| one.metrics) {
        let number = |point: number_data_point::Value| match point {
            number_data_point::Value::AsDouble(value) => value,
            number_data_point::Value::AsInt(value) => value as f64,
        };
        let numbers = match metric.data {
            Some(Data::Gauge(gauge)) => gauge.data_points,
            Some(Data::Sum(sum)) => sum.data_points,
            Some(Data::Histogram(histogram)) => {
                for one in histogram.data_points {
                    let attributes = named(&one.attributes);
                    points.push((metric.name.clone(), attributes, one.count as f64));
                }
                continue;
            }
            _ => continue,
        };
        for one in numbers {
            let value = one.value.map_or(f64::NAN, number);
            points.push((metric.name.clone(), named(&one.attributes), value));
        }
    }
    taken
        .points
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(points);
}

impl Collector {
    async fn start() -> anyhow::Result<Self> {
        let (sender, spans) = mpsc::unbounded_channel();
        let taken = Taken {
            spans: sender,
            points: Arc::default(),
            resource: Arc::default(),
            requests: Arc::default(),
            answers: Arc::new(Semaphore::new(1000)),
        };
        let router = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .with_state(taken.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self {
            url,
            spans: Mutex::new(spans),
            points: taken.points,
            resource: taken.resource,
            requests: taken.requests,
            answers: taken.answers,
        })
    }

    async fn span(&self) -> anyhow::Result<Span> {
        let mut spans = self.spans.lock().await;
        let span = tokio::time::timeout(BOUND, spans.recv()).await?;
        span.ok_or_else(|| anyhow::anyhow!("the collector has ended"))
    }

    /// Waits for a point of this metric with these attributes and this value.
    async fn has(
        &self,
        metric: &str,
        attributes: &[(&str, &str)],
        value: f64,
    ) -> anyhow::Result<()> {
        let is = |(name, of, is): &Point| {
            let has = |(key, value): &(&str, &str)| of.get(*key).is_some_and(|one| one == value);
            name == metric && *is == value && attributes.iter().all(has)
        };
        let seen = eventually(BOUND, metric, async || {
            Ok(self
                .points
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(is))
        });
        let seen = seen.await;
        seen.map_err(|error| {
            error.context(format!(
                "{:?}",
                self.points.lock().unwrap_or_else(PoisonError::into_inner)
            ))
        })
    }
}

/// Starts a command that exports often, with additional environment variables.
fn spawn(
    stage: &Stage,
    database: &TestDb,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> anyhow::Result<Child> {
    let mut command = stage.command(arguments);
    command
        .env("DATABASE_URL", database.url())
        .env("NO_PROXY", "127.0.0.1")
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200");
    Child::spawn(command.envs(environment.iter().copied()))
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const WORK: [&str; 5] = ["work", "--exec", "ok=true", "--exec", "no=false"];

#[tokio::test(flavor = "multi_thread")]
async fn run_spans_link_to_the_enqueueing_trace() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, collector) = (database.client().await?, Collector::start().await?);
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let mut worker = spawn(&stage, &database, &WORK, &endpoint)?;
    let enqueue = format!("SELECT posthaste.enqueue('ok', trace => '{PARENT}')");
    let id: i64 = client.query_one(&enqueue, &[]).await?.try_get(0)?;
    let span = collector.span().await?;
    assert_eq!(span.name, "run ok");
    assert_eq!(span.kind, i32::from(SpanKind::Consumer));
    let attributes = named(&span.attributes);
    let of = |key: &str| attributes.get(key).map(String::as_str);
    assert_eq!(of("posthaste.job.id"), Some(&*id.to_string()), "{span:?}");
    assert_eq!(of("posthaste.queue"), Some("default"));
    assert_eq!(of("posthaste.job.name"), Some("ok"));
    assert_eq!(of("posthaste.job.attempt"), Some("1"));
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|one| format!("{one:02x}")).collect() };
    let links: Vec<_> = span
        .links
        .iter()
        .map(|link| (hex(&link.trace_id), hex(&link.span_id)))
        .collect();
    let parent = "0af7651916cd43dd8448eb211c80319c";
    assert_eq!(links, [(parent.to_owned(), "b7ad6b7169203331".to_owned())]);
    assert!(span.parent_span_id.is_empty(), "a link and no parent");
    assert_ne!(hex(&span.trace_id), parent);
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    let resource = collector
        .resource
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    assert_eq!(resource["service.name"], "posthaste");

    client.run("SELECT posthaste.enqueue('no')").await?;
    let span = collector.span().await?;
    assert_eq!((span.name.as_str(), span.links.len()), ("run no", 0));
    let status = span.status.unwrap_or_default();
    assert_eq!(status.code, i32::from(StatusCode::Error));
    assert!(status.message.contains("exit"), "{status:?}");
    let of = |outcome| [("queue", "default"), ("name", "ok"), ("outcome", outcome)];
    let run = "posthaste_run_seconds";
    collector.has(run, &of("completed"), 1.0).await?;
    collector
        .has("posthaste_wait_seconds", &of("completed")[..2], 1.0)
        .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_and_metrics_can_use_messaging_conventions() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, collector) = (database.client().await?, Collector::start().await?);
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_SEMCONV_STABILITY_OPT_IN", "messaging"),
        ("OTEL_SERVICE_NAME", "mailer"),
    ];
    let mut worker = spawn(&stage, &database, &WORK, &environment)?;
    client.run("SELECT posthaste.enqueue('ok')").await?;
    let span = collector.span().await?;
    assert_eq!(span.name, "process default");
    let attributes = named(&span.attributes);
    for (key, value) in [
        ("messaging.system", "posthaste"),
        ("messaging.operation.type", "process"),
        ("messaging.operation.name", "process"),
        ("messaging.destination.name", "default"),
    ] {
        assert_eq!(
            attributes.get(key).map(String::as_str),
            Some(value),
            "{key}"
        );
    }
    assert!(attributes.contains_key("messaging.message.id"), "{span:?}");
    let resource = collector
        .resource
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    assert_eq!(resource["service.name"], "mailer");
    let of = [
        ("messaging.system", "posthaste"),
        ("messaging.destination.name", "default"),
        ("posthaste.outcome", "completed"),
    ];
    collector
        .has("messaging.process.duration", &of, 1.0)
        .await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_sends_the_metrics_of_the_database() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, collector) = (database.client().await?, Collector::start().await?);
    let enqueue = "SELECT posthaste.enqueue('a', queue => 'mail') FROM generate_series(1, 3)";
    client.run(enqueue).await?;
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let exporter = ["exporter", "--listen", "127.0.0.1:0"];
    let mut exporter = spawn(&stage, &database, &exporter, &endpoint)?;
    let of = [("queue", "mail"), ("state", "available")];
    collector.has("posthaste_jobs", &of, 3.0).await?;
    collector.has("posthaste_database_up", &[], 1.0).await?;
    client.run(enqueue).await?;
    collector.has("posthaste_jobs", &of, 6.0).await?;
    exporter.terminate()?;
    assert!(exporter.exit(BOUND).await?.success());
    Ok(())
}

/// Returns how many times the log reports that the collector does not accept data.
fn warnings(child: &Child) -> usize {
    let stderr = child.stderr();
    stderr
        .iter()
        .filter(|line| line.contains("the OpenTelemetry collector"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_otlp_collector_is_logged_once_and_slows_no_job() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let client = database.client().await?;
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let endpoint = format!("http://{closed}");
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    let mut worker = spawn(&stage, &database, &WORK, &endpoint)?;
    let enqueue = "SELECT posthaste.enqueue('ok') FROM generate_series(1, 20)";
    for _ in 0..3 {
        client.run(enqueue).await?;
        let left = "SELECT count(*) FROM posthaste.job";
        eventually(BOUND, "all are done", async || {
            Ok(number(&client, left).await? == 0)
        })
        .await?;
    }
    worker.error_line("accepts no data", BOUND).await?;
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    assert_eq!(warnings(&worker), 1, "{:?}", worker.stderr());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_otlp_collector_slows_no_job_and_buffers_are_bounded() -> anyhow::Result<()> {
    const JOBS: usize = 600;
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, collector) = (database.client().await?, Collector::start().await?);
    let held = Arc::clone(&collector.answers)
        .acquire_many_owned(1000)
        .await?;
    let done = post(async || "done");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let http = format!("ok=http://{}/", listener.local_addr()?);
    let router = Router::new().route("/", done);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "50"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50"),
    ];
    let work = ["work", "--http", &http];
    let mut worker = spawn(&stage, &database, &work, &environment)?;
    client.run("SELECT posthaste.enqueue('ok')").await?;
    eventually(BOUND, "the collector is asked, and hangs", async || {
        Ok(collector.requests.load(Ordering::SeqCst) > 0)
    })
    .await?;
    let crowd = format!("SELECT posthaste.enqueue('ok') FROM generate_series(1, {JOBS})");
    client.run(&crowd).await?;
    let left = "SELECT count(*) FROM posthaste.job";
    eventually(BOUND, "all are done", async || {
        Ok(number(&client, left).await? == 0)
    })
    .await?;
    // One batch is at the collector and one is waiting; the others were dropped.
    drop(held);
    worker.terminate()?;
    assert!(worker.exit(BOUND).await?.success());
    let mut spans = collector.spans.lock().await;
    let mut sent = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(200), spans.recv()).await {
        sent += 1;
    }
    assert!((1..=110).contains(&sent), "{sent} of {JOBS}");
    Ok(())
}
