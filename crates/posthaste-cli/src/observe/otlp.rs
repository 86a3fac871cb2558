//! OTLP: exports metrics, and spans of runs, relays and syncs, to the collector that
//! OpenTelemetry's standard environment variables name.
//!
//! No code waits for the collector. Spans wait in a bounded queue and are dropped if it is full;
//! metrics are sums.

mod meters;
mod post;
mod spans;

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, bail};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Stream};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use meters::Meters;
pub(crate) use meters::observe;
use post::CollectorClient;
use spans::RunSpanExporter;

/// Variables that name a collector.
const ENDPOINT_VARIABLES: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
];
/// How long an ending process waits for the last export of spans, and for that of metrics.
const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of series of a metric; labels are bounded separately.
const MAX_SERIES_PER_METRIC: usize = 50_000;
/// Set if metrics are exported.
static IS_ON: OnceLock<()> = OnceLock::new();
/// The instrumentation scope of spans and metrics.
const SCOPE: &str = "posthaste";

/// The export to a collector until the process ends.
pub(crate) struct Otlp {
    spans: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

/// Returns an environment variable, `None` if it is empty.
fn env_unless_empty(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether attributes and metrics have the names of OpenTelemetry's messaging conventions, which
/// are in development.
fn has_messaging_names() -> bool {
    let chosen = env_unless_empty("OTEL_SEMCONV_STABILITY_OPT_IN").unwrap_or_default();
    chosen.split(',').any(|one| one.trim() == "messaging")
}

impl Otlp {
    /// Starts to export on this runtime, if a collector is configured.
    pub(crate) fn start(runtime: &Handle) -> anyhow::Result<Option<Self>> {
        let is_named = ENDPOINT_VARIABLES
            .iter()
            .any(|name| env_unless_empty(name).is_some());
        let is_disabled =
            env_unless_empty("OTEL_SDK_DISABLED").is_some_and(|value| value == "true");
        if !is_named || is_disabled {
            return Ok(None);
        }
        match env_unless_empty("OTEL_EXPORTER_OTLP_PROTOCOL").as_deref() {
            None | Some("http/protobuf") => {}
            Some(other) => bail!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is {other}: this program supports http/protobuf only"
            ),
        }
        let post = CollectorClient::new(runtime.clone())?;
        let wrong = "the environment's OTEL_EXPORTER_OTLP_… cannot be used";
        let spans = SpanExporter::builder().with_http();
        let spans = spans.with_http_client(post.clone());
        let spans = RunSpanExporter::new(spans.build().context(wrong)?, has_messaging_names());
        let metrics = MetricExporter::builder().with_http();
        let metrics = metrics.with_http_client(post);
        let reader = PeriodicReader::builder(metrics.build().context(wrong)?).build();
        let most = |_: &_| {
            Stream::builder()
                .with_cardinality_limit(MAX_SERIES_PER_METRIC)
                .build()
                .ok()
        };
        let metrics = SdkMeterProvider::builder()
            .with_resource(resource())
            .with_reader(reader)
            .with_view(most)
            .build();
        opentelemetry::global::set_meter_provider(metrics.clone());
        let _ = IS_ON.set(());
        let spans = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(spans)
            .build();
        Ok(Some(Self { spans, metrics }))
    }

    /// Returns a layer that exports the spans of runs, relays and syncs with their outcomes.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let ours = filter_fn(|seen| {
            let is_ours = ["posthaste::", "posthaste_relay::", "posthaste_sync::"]
                .iter()
                .any(|one| seen.target().starts_with(one));
            let is_kept = match seen.is_span() {
                true => spans::SPAN_NAMES.contains(&seen.name()),
                false => seen.target() == "posthaste::consumer::ticket",
            };
            is_ours && is_kept
        });
        tracing_opentelemetry::layer()
            .with_tracer(self.spans.tracer(SCOPE))
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(ours.with_max_level_hint(LevelFilter::INFO))
    }

    /// Exports the remaining data, and drops it if the collector does not answer in time.
    pub(crate) fn flush(self) {
        // The failure is logged already.
        let _ = self.spans.shutdown_with_timeout(FINAL_EXPORT_TIMEOUT);
        let _ = self.metrics.shutdown_with_timeout(FINAL_EXPORT_TIMEOUT);
    }
}

/// Returns the recorder of the collector's metrics, if there is a collector.
pub(crate) fn meters() -> Option<Meters> {
    IS_ON.get().map(|()| Meters::new())
}

/// Describes this process. Environment variables may add attributes and replace them.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let named = env_unless_empty("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let is_named =
        env_unless_empty("OTEL_SERVICE_NAME").is_some() || named.contains("service.name=");
    let resource = Resource::builder().with_attribute(version);
    match is_named {
        true => resource.build(),
        false => resource.with_service_name("posthaste").build(),
    }
}
