//! Metrics of the process and of the database as OpenTelemetry instruments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use parking_lot::Mutex;

use super::SCOPE;
use crate::observe::collector::Collector;
use crate::observe::exposition::{HISTOGRAM_BOUNDS, Metric, Series};

/// Time between two reads of the database for the collector, unless the environment sets a shorter
/// one.
const MAX_READ_INTERVAL: Duration = Duration::from_secs(15);

/// A recorder of the library's metrics for the collector.
pub(crate) struct Meters {
    meter: Meter,
    has_messaging_names: bool,
    counters: Mutex<BTreeMap<String, opentelemetry::metrics::Counter<u64>>>,
    histograms: Mutex<BTreeMap<String, opentelemetry::metrics::Histogram<f64>>>,
}

impl Meters {
    pub(crate) fn new() -> Self {
        Self {
            meter: opentelemetry::global::meter(SCOPE),
            has_messaging_names: super::has_messaging_names(),
            counters: Mutex::default(),
            histograms: Mutex::default(),
        }
    }

    /// Returns the exported name and attributes of a metric.
    fn exported_name(&self, key: &Key) -> (String, Vec<KeyValue>) {
        let is_run = key.name() == posthaste::metrics::RUN_SECONDS;
        let is_messaging = self.has_messaging_names && is_run;
        let labels = key.labels().map(|label| {
            let name = match label.key() {
                "queue" if is_messaging => "messaging.destination.name".to_owned(),
                name if is_messaging => format!("posthaste.{name}"),
                name => name.to_owned(),
            };
            KeyValue::new(name, label.value().to_owned())
        });
        let mut attributes: Vec<_> = labels.collect();
        if !is_messaging {
            return (key.name().to_owned(), attributes);
        }
        attributes.extend([
            KeyValue::new("messaging.system", "posthaste"),
            KeyValue::new("messaging.operation.name", "process"),
        ]);
        ("messaging.process.duration".into(), attributes)
    }
}

impl Recorder for Meters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let (name, attributes) = self.exported_name(key);
        let mut all = self.counters.lock();
        let new = || self.meter.u64_counter(name.clone()).build();
        let instrument = all.entry(name.clone()).or_insert_with(new).clone();
        Counter::from_arc(Arc::new(OtlpCounter {
            instrument,
            attributes,
        }))
    }

    /// The library has no gauges.
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let (name, attributes) = self.exported_name(key);
        let mut all = self.histograms.lock();
        let new = || {
            let histogram = self.meter.f64_histogram(name.clone()).with_unit("s");
            histogram.with_boundaries(HISTOGRAM_BOUNDS.to_vec()).build()
        };
        let instrument = all.entry(name.clone()).or_insert_with(new).clone();
        Histogram::from_arc(Arc::new(OtlpHistogram {
            instrument,
            attributes,
        }))
    }
}

struct OtlpCounter {
    instrument: opentelemetry::metrics::Counter<u64>,
    attributes: Vec<KeyValue>,
}

impl CounterFn for OtlpCounter {
    fn increment(&self, value: u64) {
        self.instrument.add(value, &self.attributes);
    }

    /// The library only increments counters.
    fn absolute(&self, _: u64) {}
}

struct OtlpHistogram {
    instrument: opentelemetry::metrics::Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for OtlpHistogram {
    fn record(&self, value: f64) {
        self.instrument.record(value, &self.attributes);
    }
}

/// The last values of the database, by metric.
type LastValues = Arc<Mutex<BTreeMap<&'static str, Series>>>;

/// Observes the metrics of a database until the process ends.
pub(crate) fn observe(collector: Collector) {
    if super::IS_ON.get().is_none() {
        return;
    }
    tokio::spawn(async move {
        let (last, mut known) = (LastValues::default(), BTreeSet::new());
        let mut reads = tokio::time::interval(export_interval());
        reads.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            reads.tick().await;
            // After a failed read the old values are not reported again.
            let read = collector.metrics().await;
            let up = Metric::database_up(read.is_ok());
            let read = read.unwrap_or_default();
            let read = read.iter().chain([&up]);
            for metric in read.clone() {
                if known.insert(metric.name) {
                    register_instrument(metric, &last);
                }
            }
            let all = read.map(|one| (one.name, one.series.clone()));
            *last.lock() = all.collect();
        }
    });
}

/// Returns the read interval: the export interval, from 100 ms to [`MAX_READ_INTERVAL`].
fn export_interval() -> Duration {
    let interval = super::env_unless_empty("OTEL_METRIC_EXPORT_INTERVAL");
    let interval = interval.and_then(|text| text.parse().ok());
    interval
        .map_or(MAX_READ_INTERVAL, Duration::from_millis)
        .clamp(Duration::from_millis(100), MAX_READ_INTERVAL)
}

/// Registers an instrument for this metric.
fn register_instrument(metric: &Metric, last: &LastValues) {
    let meter = opentelemetry::global::meter(SCOPE);
    let (name, help, last) = (metric.name, metric.help, Arc::clone(last));
    let observe = move |observer: &dyn AsyncInstrument<f64>| {
        let last = last.lock();
        for (labels, value) in last.get(name).into_iter().flatten() {
            let attributes: Vec<KeyValue> = labels
                .iter()
                .map(|(label, value)| KeyValue::new(*label, value.clone()))
                .collect();
            observer.observe(*value, &attributes);
        }
    };
    match metric.kind {
        "counter" => {
            let counter = meter.f64_observable_counter(name).with_description(help);
            let _made = counter.with_callback(observe).build();
        }
        _ => {
            let gauge = meter.f64_observable_gauge(name).with_description(help);
            let _made = gauge.with_callback(observe).build();
        }
    }
}
