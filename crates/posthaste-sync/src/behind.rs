//! How far indexes lag their tables, and what blocks them.

use serde::Serialize;

/// How far one index lags.
#[derive(Clone, Debug, Default)]
pub struct SyncLag {
    /// Changes that are due and not verified in the index.
    pub due: i64,
    /// The age of the oldest of them, in seconds.
    pub seconds: Option<f64>,
    /// Problems, the longest first.
    pub problems: Vec<Problem>,
}

/// The reason why jobs of a sync, of changes or of re-indexes, are not done.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    /// The error of the index, or of making the document.
    pub reason: String,
    /// The number of jobs that it blocks.
    pub jobs: i64,
    /// The age of the oldest of them, in seconds.
    pub seconds: f64,
    /// Whether the jobs are no longer retried.
    pub given_up: bool,
}

impl SyncLag {
    /// Returns for how many seconds the oldest job that is still retried has failed; `None` if none
    /// fails.
    pub fn fails_for(&self) -> Option<f64> {
        let failing = self.problems.iter().filter(|one| !one.given_up);
        failing.map(|one| one.seconds).reduce(f64::max)
    }
}
