//! The results of a phase's requests, formatted for people. Pure.

use std::time::Duration;

/// The results of a phase's requests.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub requests: usize,
    pub failed: usize,
    /// Failed requests that got no answer before the caller's timeout.
    pub late: usize,
    pub p50: Duration,
    pub p99: Duration,
}

impl Figures {
    /// Computes the results of requests that took this long; this many failed, and of these this
    /// many were late.
    pub fn of(mut took: Vec<Duration>, [failed, late]: [usize; 2]) -> Self {
        took.sort();
        let at = |percent: usize| {
            let place = (took.len() * percent).div_ceil(100).saturating_sub(1);
            took.get(place).copied().unwrap_or_default()
        };
        Self {
            requests: took.len(),
            failed,
            late,
            p50: at(50),
            p99: at(99),
        }
    }
}

/// Formats a time in milliseconds.
pub fn ms(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1000.0)
}

/// Returns the texts of the bounds that were not kept.
pub fn missed(bounds: impl IntoIterator<Item = (bool, String)>) -> Vec<String> {
    let broken = bounds.into_iter().filter(|(is_kept, _)| !is_kept);
    broken.map(|(_, bound)| bound).collect()
}
