//! Spans of relays and syncs.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use posthaste_testkit::Sql as _;

use super::{Collector, PARENT, named, spawn};
use crate::stage::{self, BOUND, Stage};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|one| format!("{one:02x}")).collect()
}

/// Waits for a span of this name and skips others.
async fn span_of(collector: &Collector, name: &str) -> anyhow::Result<Span> {
    loop {
        let span = collector.span().await?;
        if span.name == name {
            return Ok(span);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relay_spans_have_bounded_links_and_no_payload() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, collector) = (database.client().await?, Collector::start().await?);
    let answers = post(
        async |body: Bytes| match body.windows(3).any(|part| part == b"bad") {
            true => axum::http::StatusCode::GONE,
            false => axum::http::StatusCode::OK,
        },
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let webhook = format!("http://{}/", listener.local_addr()?);
    let router = Router::new().route("/", answers);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let file = format!(
        "[route.lines]\nto = 'stdout:'\nbatch = 100\n\
         [route.hooks]\nto = '{webhook}'\nnetworks = ['127.0.0.1']\n"
    );
    stage.write("posthaste.toml", &file)?;
    let enqueue = format!(
        "SELECT posthaste.enqueue('a', '{{\"iban\": \"geheim\"}}', queue => 'lines',
                                  trace => '{PARENT}') FROM generate_series(1, 60)"
    );
    client.run(&enqueue).await?;
    let endpoint = [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str())];
    let mut relay = spawn(&stage, &database, &["relay", "run"], &endpoint)?;
    let (mut sent, mut most) = (0, 0);
    while sent < 60 {
        let span = span_of(&collector, "send lines").await?;
        assert_eq!(span.kind, i32::from(SpanKind::Client));
        let attributes = named(&span.attributes);
        let of = |key: &str| attributes.get(key).map(String::as_str);
        assert_eq!(of("posthaste.outcome"), Some("accepted"), "{span:?}");
        assert_eq!(of("posthaste.jobs"), of("posthaste.accepted"));
        assert_eq!(of("posthaste.failed"), Some("0"));
        assert_eq!(of("error.type"), None);
        assert!(of("posthaste.destination").is_some());
        let jobs: usize = of("posthaste.jobs").unwrap_or_default().parse()?;
        assert_eq!(span.links.len(), jobs.min(32));
        let parent = "0af7651916cd43dd8448eb211c80319c";
        assert!(span.links.iter().all(|link| hex(&link.trace_id) == parent));
        assert!(span.parent_span_id.is_empty() && hex(&span.trace_id) != parent);
        assert!(!format!("{span:?}").contains("geheim"), "{span:?}");
        (sent, most) = (sent + jobs, most.max(jobs));
    }
    assert!(most > 32, "no batch was large enough to tell: {most}");

    let bad = "SELECT posthaste.enqueue('a', '{\"what\": \"bad geheim\"}', queue => 'hooks')";
    client.run(bad).await?;
    let span = span_of(&collector, "send hooks").await?;
    let attributes = named(&span.attributes);
    let of = |key: &str| attributes.get(key).map(String::as_str);
    assert_eq!(of("posthaste.outcome"), Some("failed"), "{span:?}");
    assert_eq!(of("error.type"), Some("no_route"), "{span:?}");
    let status = span.status.clone().unwrap_or_default();
    assert_eq!(status.code, i32::from(StatusCode::Error));
    assert_eq!((status.message.as_str(), span.links.len()), ("no_route", 0));
    assert!(!format!("{span:?}").contains("geheim"), "{span:?}");
    relay.terminate()?;
    assert!(relay.exit(BOUND).await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_passes_are_spans_with_results_and_links() -> anyhow::Result<()> {
    let (stage, database) = (Stage::new()?, stage::database().await?);
    let (client, collector) = (database.client().await?, Collector::start().await?);
    let table = "CREATE TABLE page (id bigint PRIMARY KEY, title text NOT NULL)";
    client.run(table).await?;
    let file = "[sync.page]\nindex = 'postgres:'\nperiod = '1s'\ndelay = '0s'\n";
    stage.write("posthaste.toml", file)?;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_SEMCONV_STABILITY_OPT_IN", "messaging"),
    ];
    stage
        .run_on(&database, &["sync", "install"])
        .await?
        .good()?;
    let mut sync = spawn(&stage, &database, &["sync", "run"], &environment)?;
    sync.error_line("Ctrl-C stops", BOUND).await?;
    client
        .run("INSERT INTO page (id, title) SELECT g, 'geheim' FROM generate_series(1, 3) g")
        .await?;
    let (mut written, mut done) = (0, 0);
    while written < 3 || done < 3 {
        let span = span_of(&collector, "process sync.page").await?;
        assert_eq!(span.kind, i32::from(SpanKind::Consumer));
        let attributes = named(&span.attributes);
        let of = |key: &str| attributes.get(key).map(String::as_str);
        let number = |key: &str| of(key).unwrap_or_default().parse::<usize>();
        assert_eq!(of("posthaste.outcome"), Some("completed"), "{span:?}");
        assert_eq!(of("messaging.system"), Some("posthaste"));
        assert_eq!(of("messaging.operation.type"), Some("process"));
        let all = number("messaging.batch.message_count")?;
        let counted = number("posthaste.written")? + number("posthaste.done")?;
        assert_eq!(all, counted, "{span:?}");
        assert!(all > 0 && of("posthaste.index").is_some(), "{span:?}");
        assert!(!format!("{span:?}").contains("geheim"), "{span:?}");
        written += number("posthaste.written")?;
        done += number("posthaste.done")?;
    }
    sync.terminate()?;
    assert!(sync.exit(BOUND).await?.success());
    Ok(())
}
