//! How far indexes are behind their tables, and what is in the way.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio_postgres::Client;

/// This many reasons of a sync are shown; one that names documents may have thousands.
pub(crate) const SHOWN: usize = 3;

/// How far one index is behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    /// Changes that are due and not seen in the index.
    pub(crate) due: i64,
    /// For how long the oldest of them.
    pub(crate) seconds: Option<f64>,
    pub(crate) problems: Vec<Problem>,
}

/// Why jobs of a sync are not done: of changes, and of re-indexes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) reason: String,
    pub(crate) jobs: i64,
    /// For how long the oldest of them.
    pub(crate) seconds: f64,
    /// They are not tried any more.
    pub(crate) given_up: bool,
}

impl Behind {
    /// Since when something fails that is tried again.
    pub(crate) fn fails_for(&self) -> Option<f64> {
        let failing = self.problems.iter().filter(|one| !one.given_up);
        failing.map(|one| one.seconds).reduce(f64::max)
    }
}

/// Every sync that is behind, by its name. It reads the rows of jobs: counters know no reasons.
pub(crate) async fn behind(
    client: &Client,
) -> Result<BTreeMap<String, Behind>, tokio_postgres::Error> {
    let rows = client.query_typed(include_str!("behind.sql"), &[]).await?;
    let mut all = BTreeMap::<String, Behind>::new();
    for row in &rows {
        let one = all.entry(row.try_get(0)?).or_default();
        let (reason, jobs): (Option<String>, i64) = (row.try_get(1)?, row.try_get(2)?);
        let seconds = row.try_get::<_, f64>(3)?.max(0.0);
        match reason {
            None => (one.due, one.seconds) = (jobs, Some(seconds)),
            Some(reason) => one.problems.push(Problem {
                reason: reason.replace(char::is_control, " "),
                jobs,
                seconds,
                given_up: row.try_get(4)?,
            }),
        }
    }
    Ok(all)
}
