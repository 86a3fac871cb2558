//! Metrics of captures.

use posthaste_capture::Overview;
use posthaste_observe::Snapshot;

use super::{Labels, MetricList, Series};

const STATES: [&str; 10] = [
    "running",
    "direct",
    "waiting",
    "spilling",
    "full",
    "draining",
    "copying",
    "paused",
    "not running",
    "stopped",
];

type Figure = fn(&Overview) -> f64;

/// The name, type, help and value of each metric.
const METRICS: [(&str, &str, &str, Figure); 7] = [
    (
        "posthaste_capture_events_total",
        "counter",
        "Events that the capture has sent or written as jobs since it was installed or begun.",
        |one| one.events as f64,
    ),
    (
        "posthaste_capture_bytes_total",
        "counter",
        "Approximate size of these events in bytes.",
        |one| one.bytes as f64,
    ),
    (
        "posthaste_capture_unconfirmed_bytes",
        "gauge",
        "Bytes of the log written since the last mark of the capture.",
        |one| one.unconfirmed_bytes.unwrap_or(0) as f64,
    ),
    (
        "posthaste_capture_retained_bytes",
        "gauge",
        "Bytes of the log that the server retains for the capture.",
        |one| one.retained_bytes.unwrap_or(0) as f64,
    ),
    (
        "posthaste_capture_lag_seconds",
        "gauge",
        "Commits older than this are captured; 0 while the capture keeps up.",
        |one| one.lag_seconds.unwrap_or(0.0),
    ),
    (
        "posthaste_capture_copied_rows",
        "gauge",
        "Rows read by copies that have not ended.",
        |one| one.copied_rows.unwrap_or(0) as f64,
    ),
    (
        "posthaste_capture_gaps",
        "gauge",
        "Gaps of the capture that are not accepted.",
        |one| one.gaps as f64,
    ),
];

pub(super) fn add_captures(all: &mut MetricList, snapshot: &Snapshot, labels: &mut Labels) {
    let captures = &snapshot.captures;
    let names: Vec<_> = captures
        .iter()
        .map(|one| ("capture", labels.value("capture", "", &one.name)))
        .collect();
    let captures = || names.iter().cloned().zip(captures);
    for (name, kind, help, read) in METRICS {
        let series: Series = captures()
            .map(|(label, one)| (vec![label], read(one)))
            .collect();
        all.metric(name, kind, help, &series);
    }
    let states = captures().flat_map(|(label, one)| {
        STATES.map(|state| {
            let key = vec![label.clone(), ("state", state.replace(' ', "_"))];
            (key, f64::from(one.state() == state))
        })
    });
    let help = "1 for the state of the capture.";
    all.metric("posthaste_capture_state", "gauge", help, &states.collect());
}
