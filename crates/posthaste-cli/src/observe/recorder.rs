//! The metrics of this process: how long its jobs waited and ran.

use std::sync::Arc;

use anyhow::Context as _;
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, SharedString, Unit,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::exposition::SECONDS;
use super::otlp;

const HISTOGRAMS: [(&str, &str); 2] = [
    (
        posthaste::metrics::WAIT_SECONDS,
        "How long jobs waited from when they were due and committed until their run began.",
    ),
    (
        posthaste::metrics::RUN_SECONDS,
        "How long runs took, by outcome.",
    ),
];

/// Where nobody listens, and there is a collector.
pub(super) fn install_for_a_collector_alone() -> anyhow::Result<()> {
    let Some(meters) = otlp::meters() else {
        return Ok(());
    };
    metrics::set_global_recorder(meters)
        .ok()
        .context("metrics are recorded already")
}

/// Two that record the same.
struct Both<A, B>(A, B);

impl<A: metrics::Recorder, B: metrics::Recorder> metrics::Recorder for Both<A, B> {
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
        let both = Both(
            self.0.register_counter(key, of),
            self.1.register_counter(key, of),
        );
        Counter::from_arc(Arc::new(both))
    }

    /// The library has none.
    fn register_gauge(&self, key: &Key, of: &Metadata<'_>) -> Gauge {
        self.0.register_gauge(key, of)
    }

    fn register_histogram(&self, key: &Key, of: &Metadata<'_>) -> Histogram {
        let both = Both(
            self.0.register_histogram(key, of),
            self.1.register_histogram(key, of),
        );
        Histogram::from_arc(Arc::new(both))
    }
}

impl CounterFn for Both<Counter, Counter> {
    fn increment(&self, value: u64) {
        self.0.increment(value);
        self.1.increment(value);
    }

    fn absolute(&self, value: u64) {
        self.0.absolute(value);
        self.1.absolute(value);
    }
}

impl HistogramFn for Both<Histogram, Histogram> {
    fn record(&self, value: f64) {
        self.0.record(value);
        self.1.record(value);
    }
}

/// Records from now on what the library tells.
#[derive(Clone)]
pub(crate) struct Recorder(PrometheusHandle);

impl Recorder {
    /// For this process, once.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let mut builder = PrometheusBuilder::new();
        for (name, _) in HISTOGRAMS {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.into()), &SECONDS)?;
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        match otlp::meters() {
            Some(meters) => metrics::set_global_recorder(Both(recorder, meters)).map_err(drop),
            None => metrics::set_global_recorder(recorder).map_err(drop),
        }
        .ok()
        .context("metrics are recorded already")?;
        for (name, help) in HISTOGRAMS {
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

    /// Sums up what was recorded, as is to be done now and then.
    pub(crate) fn tidy(&self) {
        self.0.run_upkeep();
    }
}
