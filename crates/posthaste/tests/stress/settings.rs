//! The load and the duration of a run.

use std::time::Duration;

/// The shape of one run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long producers run.
    pub produce: Duration,
    /// Longer on a slow machine, until this many jobs were delivered or this time is over.
    pub enough: usize,
    pub longest: Duration,
    /// How long a long transaction waits between its snapshot and its enqueue, and again before its
    /// commit.
    pub long: Duration,
    /// Producers of short transactions.
    pub producers: usize,
    /// Producers of long transactions, of each kind.
    pub long_producers: usize,
    pub claimers: usize,
    /// The size after which a new segment begins.
    pub segment_bytes: i64,
    /// The isolation level of claims; only mutants use another than READ COMMITTED.
    pub claim_isolation: &'static str,
    /// The idle time, once no job is scheduled, after which open jobs count as lost.
    pub stalled: Duration,
    /// Sometimes the promoter has followed a clock that was ahead and has been set back.
    pub clock_steps: bool,
}

impl Settings {
    /// Returns the run of `cargo test`. `POSTHASTE_STRESS_SECONDS` makes it longer.
    pub fn full() -> Self {
        let seconds = std::env::var("POSTHASTE_STRESS_SECONDS")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(7);
        Self {
            produce: Duration::from_secs(seconds),
            enough: 3_000,
            longest: Duration::from_secs(seconds.max(60)),
            long: Duration::from_millis(1500),
            producers: 8,
            long_producers: 2,
            claimers: 6,
            segment_bytes: 48 << 10,
            claim_isolation: "READ COMMITTED",
            stalled: Duration::from_secs(8),
            clock_steps: false,
        }
    }

    /// Returns the run that must detect mutants.
    pub fn short() -> Self {
        Self {
            produce: Duration::from_millis(3500),
            enough: 0,
            long: Duration::from_millis(600),
            stalled: Duration::from_secs(4),
            ..Self::full()
        }
    }
}
