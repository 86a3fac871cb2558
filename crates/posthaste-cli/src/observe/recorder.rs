//! Metrics of this process: the wait and run times of its jobs.

use std::sync::Arc;

use anyhow::Context as _;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::exposition::HISTOGRAM_BOUNDS;
use super::otlp;

const HISTOGRAM_BUCKETS: [(&str, &str); 2] = [
    (
        posthaste::metrics::WAIT_SECONDS,
        "How long jobs waited from when they were due and committed until their run began.",
    ),
    (
        posthaste::metrics::RUN_SECONDS,
        "How long runs took, by outcome.",
    ),
];

/// Installs a recorder for the collector alone, without an HTTP server.
pub(super) fn install_for_a_collector_alone() -> anyhow::Result<()> {
    let Some(meters) = otlp::meters() else {
        return Ok(());
    };
    metrics::set_global_recorder(meters)
        .ok()
        .context("this process already has a metrics recorder")
}

/// Two recorders of the same metrics.
struct TeeRecorder<A, B>(A, B);

impl<A: metrics::Recorder, B: metrics::Recorder> metrics::Recorder for TeeRecorder<A, B> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_counter(key.clone(), unit, help.clone());
        self.1.describe_counter(key, unit, help);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_gauge(key.clone(), unit, help.clone());
        self.1.describe_gauge(key, unit, help);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.0.describe_histogram(key.clone(), unit, help.clone());
        self.1.describe_histogram(key, unit, help);
    }

    fn register_counter(&self, key: &Key, of: &Metadata<'_>) -> Counter {
        let both = TeeRecorder(
            self.0.register_counter(key, of),
            self.1.register_counter(key, of),
        );
        Counter::from_arc(Arc::new(both))
    }

    /// The library has no gauges.
    fn register_gauge(&self, key: &Key, of: &Metadata<'_>) -> Gauge {
        self.0.register_gauge(key, of)
    }

    fn register_histogram(&self, key: &Key, of: &Metadata<'_>) -> Histogram {
        let both = TeeRecorder(
            self.0.register_histogram(key, of),
            self.1.register_histogram(key, of),
        );
        Histogram::from_arc(Arc::new(both))
    }
}

impl CounterFn for TeeRecorder<Counter, Counter> {
    fn increment(&self, value: u64) {
        self.0.increment(value);
        self.1.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.0.absolute(value);
        self.1.absolute(value);
    }
}

impl HistogramFn for TeeRecorder<Histogram, Histogram> {
    fn record(&self, value: f64) {
        self.0.record(value);
        self.1.record(value);
    }
}

/// The recorder of the library's metrics.
#[derive(Clone)]
pub(crate) struct Recorder(PrometheusHandle);

impl Recorder {
    /// Installs the recorder of this process. Fails if one is installed.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let mut builder = PrometheusBuilder::new();
        for (name, _) in HISTOGRAM_BUCKETS {
            builder =
                builder.set_buckets_for_metric(Matcher::Full(name.into()), &HISTOGRAM_BOUNDS)?;
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        match otlp::meters() {
            Some(meters) => {
                metrics::set_global_recorder(TeeRecorder(recorder, meters)).map_err(drop)
            }
            None => metrics::set_global_recorder(recorder).map_err(drop),
        }
        .ok()
        .context("this process already has a metrics recorder")?;
        for (name, help) in HISTOGRAM_BUCKETS {
            metrics::describe_histogram!(name, help);
        }
        metrics::describe_counter!(
            posthaste_sync::DOCUMENTS_TOTAL,
            "Documents that a sync checked, by outcome and reason."
        );
        Ok(Self(handle))
    }

    pub(crate) fn text(&self) -> String {
        self.0.render()
    }

    /// Aggregates recorded values. It must be called regularly.
    pub(crate) fn aggregate(&self) {
        self.0.run_upkeep();
    }
}
