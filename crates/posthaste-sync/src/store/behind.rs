//! Problems that block syncs.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Row};

use crate::{Problem, SyncLag};
use posthaste::Error;

/// Returns every sync that lags its table, by name. It reads the rows of jobs, because counters do
/// not include reasons: set a statement timeout if many jobs may be waiting.
pub async fn lagging_syncs(client: &Client) -> Result<BTreeMap<String, SyncLag>, Error> {
    let failed = "cannot read the progress of syncs";
    let rows = client.query_typed(include_str!("behind.sql"), &[]).await;
    let rows = rows.map_err(Error::postgres(failed))?;
    let mut all = BTreeMap::<String, SyncLag>::new();
    for row in &rows {
        add_row(row, &mut all).map_err(Error::postgres(failed))?;
    }
    Ok(all)
}

fn add_row(row: &Row, all: &mut BTreeMap<String, SyncLag>) -> Result<(), tokio_postgres::Error> {
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
    Ok(())
}
