//! How hard and how long a run is.

use std::time::Duration;

/// The shape of one run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long producers go on.
    pub produce: Duration,
    /// And longer on a slow machine, until this many jobs were handed out or this time is over.
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
    /// A segment is followed by a new one beyond this size.
    pub segment_bytes: i64,
    /// The isolation that claims ask for; anything but READ COMMITTED is a mutant's.
    pub claim_isolation: &'static str,
    /// How long nothing may happen, once nothing is due later, before what is open counts as lost.
    pub stalled: Duration,
    /// Now and then the promoter has followed a clock that was ahead, which has stepped back since.
    pub clock_steps: bool,
}

impl Settings {
    /// The run of `cargo test`. `POSTHASTE_STRESS_SECONDS` makes it longer.
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

    /// The run that mutants have to survive.
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
