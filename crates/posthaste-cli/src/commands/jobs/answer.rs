//! `posthaste jobs cancel` and `retry`: what became of each job.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::Chosen;
use crate::terminal::Terminal;

#[derive(Serialize)]
struct Answer {
    id: i64,
    /// None: nothing is known of it.
    state: Option<String>,
    #[serde(skip)]
    says: Says,
}

/// What a state means after a command.
type Says = fn(&Option<String>) -> String;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} {}", self.id, (self.says)(&self.state))
    }
}

pub(super) async fn cancel(
    client: &Client,
    terminal: &Terminal,
    ids: &[i64],
) -> anyhow::Result<()> {
    let met = cancel_all(client, ids).await?;
    tell(terminal, met, ids, |state| match state.as_deref() {
        Some("cancelled") => "is cancelled".into(),
        Some("running") => "is running; its worker is told to end it".into(),
        Some(state) => format!("had ended before: {state}"),
        None => "is done, or there never was one".into(),
    })
}

/// Between two tries in which nothing was met.
const PAUSE: Duration = Duration::from_millis(200);

/// What became of each, part by part: a call that meets many lanes leaves the rest waiting, so that one transaction holds few locks. So does one that
/// finds the promoter at work.
async fn cancel_all(client: &Client, ids: &[i64]) -> anyhow::Result<Vec<(i64, String)>> {
    let mut met = Vec::with_capacity(ids.len());
    let mut left = ids.to_vec();
    while !left.is_empty() {
        let rows = client
            .query_typed(include_str!("cancel.sql"), &[(&left, Type::INT8_ARRAY)])
            .await?;
        let (waiting, ended): (Vec<_>, Vec<_>) = read(&rows)?
            .into_iter()
            .partition(|(_, state)| state == "claimable");
        if ended.is_empty() && !waiting.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        left = waiting.into_iter().map(|(id, _)| id).collect();
        met.extend(ended);
    }
    Ok(met)
}

pub(super) async fn retry(
    client: &Client,
    terminal: &Terminal,
    chosen: &Chosen,
) -> anyhow::Result<()> {
    let rows = chosen.send(client, include_str!("retry.sql")).await?;
    tell(terminal, read(&rows)?, &chosen.ids, |state| {
        match state.as_deref() {
            Some("claimable") => "runs as soon as a worker is free".into(),
            Some("waiting") => "runs when it has its turn".into(),
            Some("suspect") => "is run alone as soon as a worker is idle".into(),
            Some("awaiting") => "waits for its confirmation".into(),
            Some(state @ ("running" | "done")) => format!("is {state}"),
            Some(state) => format!("had ended before: {state}; redrive it"),
            None => "is forgotten, or there never was one".into(),
        }
    })
}

/// Rows of (id, state).
fn read(rows: &[Row]) -> Result<Vec<(i64, String)>, tokio_postgres::Error> {
    let each = rows.iter();
    each.map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// Those that were met, and after them those of `ids` that were not, which is a failure.
fn tell(
    terminal: &Terminal,
    met: Vec<(i64, String)>,
    ids: &[i64],
    says: Says,
) -> anyhow::Result<()> {
    let known: HashSet<i64> = met.iter().map(|(id, _)| *id).collect();
    let strangers: Vec<i64> = ids
        .iter()
        .copied()
        .filter(|id| !known.contains(id))
        .collect();
    let met = met.into_iter().map(|(id, state)| (id, Some(state)));
    let unmet = strangers.iter().map(|id| (*id, None));
    let answers = met.chain(unmet);
    let answers: Vec<Answer> = answers
        .map(|(id, state)| Answer { id, state, says })
        .collect();
    terminal.results(&answers, "no waiting job is so")?;
    ensure!(
        strangers.is_empty(),
        "{} of {} jobs could not be found.",
        strangers.len(),
        ids.len()
    );
    Ok(())
}
