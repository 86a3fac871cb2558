//! The metrics of this process: how long its jobs waited and ran.

use anyhow::Context as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// From a millisecond to a quarter of an hour.
const SECONDS: [f64; 14] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0,
];

const HISTOGRAMS: [(&str, &str); 2] = [
    (
        posthaste::metrics::WAIT_SECONDS,
        "How long jobs waited from when they were due and committed until their run began.",
    ),
    (
        posthaste::metrics::RUN_SECONDS,
        "How long runs took, by what came of them.",
    ),
];

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
        let handle = builder
            .install_recorder()
            .context("metrics are recorded already")?;
        for (name, help) in HISTOGRAMS {
            metrics::describe_histogram!(name, help);
        }
        metrics::describe_counter!(
            posthaste_sync::DOCUMENTS_TOTAL,
            "Documents that a sync looked at, by what came of it and why."
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
