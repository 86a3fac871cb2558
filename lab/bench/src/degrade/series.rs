//! The figures of a sample that are charted over time, in the report and in the terminal.

use super::sample::Sample;

/// A chart.
pub(crate) struct Series {
    pub(crate) title: &'static str,
    pub(crate) is_log: bool,
    pub(crate) read: fn(&Sample) -> Option<f64>,
}

/// All charts, in their order.
pub(crate) const SERIES: [Series; 5] = [
    Series {
        title: "Jobs that wait",
        is_log: false,
        read: |sample| Some(sample.waiting as f64),
    },
    Series {
        title: "Median claim, in milliseconds",
        is_log: true,
        read: |sample| sample.claim_p50_ms,
    },
    Series {
        title: "Blocks per claim",
        is_log: true,
        read: |sample| sample.claim_blocks,
    },
    Series {
        title: "Dead rows",
        is_log: false,
        read: |sample| Some(sample.dead as f64),
    },
    Series {
        title: "Age of the oldest holder, in seconds",
        is_log: false,
        read: |sample| Some(sample.holder_s),
    },
];
