//! How far indexes lag their tables, and what blocks them.

use serde::Serialize;

/// How far one index lags.
#[derive(Clone, Debug, Default)]
pub struct Behind {
    /// Changes that are due and not seen in the index.
    pub due: i64,
    /// For how long the oldest of them.
    pub seconds: Option<f64>,
    /// Problems, the longest first.
    pub problems: Vec<Problem>,
}

/// Why jobs of a sync are not done: of changes, and of re-indexes.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The error of the index, or of making the document.
    pub reason: String,
    /// How many jobs it stops.
    pub jobs: i64,
    /// For how long the oldest of them.
    pub seconds: f64,
    /// They are not tried any more.
    pub given_up: bool,
}

impl Behind {
    /// Since when something fails that is tried again.
    pub fn fails_for(&self) -> Option<f64> {
        let failing = self.problems.iter().filter(|one| !one.given_up);
        failing.map(|one| one.seconds).reduce(f64::max)
    }
}
