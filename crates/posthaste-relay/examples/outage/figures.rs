//! What requests of a phase came to, as people read it. Pure.

use std::time::Duration;

/// Requests of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub requests: usize,
    pub failed: usize,
    /// Of which these had no answer before the caller gave up.
    pub late: usize,
    pub p50: Duration,
    pub p99: Duration,
}

impl Figures {
    /// Of requests that took this long, of which this many failed, and this many of these were
    /// late.
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

/// In milliseconds.
pub fn ms(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1000.0)
}

/// The bounds that were not kept, of these, each with what is said then.
pub fn missed(bounds: impl IntoIterator<Item = (bool, String)>) -> Vec<String> {
    let broken = bounds.into_iter().filter(|(is_kept, _)| !is_kept);
    broken.map(|(_, bound)| bound).collect()
}
