//! `posthaste jobs retry`: what waits for its time runs now.

use std::fmt;

use anyhow::ensure;
use serde::Serialize;
use tokio_postgres::Client;

use super::Which;
use crate::terminal::Terminal;

#[derive(Serialize)]
struct Answer {
    id: i64,
    /// None: it is forgotten, or there never was one.
    state: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match self.state.as_deref() {
            Some("claimable") => write!(f, "job {id} runs as soon as a worker is free"),
            Some("waiting") => write!(f, "job {id} runs when it has its turn"),
            Some("suspect") => write!(f, "job {id} is run alone as soon as a worker is idle"),
            Some("awaiting") => write!(f, "job {id} waits for its confirmation"),
            Some(state @ ("running" | "done")) => write!(f, "job {id} is {state}"),
            Some(state) => write!(f, "job {id} had ended before: {state}; redrive it"),
            None => write!(f, "job {id} is forgotten, or there never was one"),
        }
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct Answers(Vec<Answer>);

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "no waiting job is so");
        }
        let lines: Vec<String> = self.0.iter().map(Answer::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

pub(super) async fn retry(
    client: &Client,
    terminal: &Terminal,
    ids: &[i64],
    which: &Which,
    limit: u32,
) -> anyhow::Result<()> {
    let named = (!ids.is_empty()).then_some(ids);
    let limit = i32::try_from(limit)?;
    let rows = client
        .query(
            include_str!("retry.sql"),
            &[
                &named,
                &which.queue,
                &which.name,
                &which.tag,
                &which.state,
                &which.error,
                &limit,
            ],
        )
        .await?;
    let met: Result<Vec<Answer>, tokio_postgres::Error> = rows
        .iter()
        .map(|row| {
            Ok(Answer {
                id: row.try_get(0)?,
                state: row.try_get(1)?,
            })
        })
        .collect();
    let mut answers = Answers(met?);
    let strangers: Vec<i64> = ids
        .iter()
        .copied()
        .filter(|id| !answers.0.iter().any(|met| met.id == *id))
        .collect();
    let unknown = strangers.iter().map(|id| Answer {
        id: *id,
        state: None,
    });
    answers.0.extend(unknown);
    terminal.result(&answers, &answers)?;
    ensure!(
        strangers.is_empty(),
        "{} of {} jobs could not be found.",
        strangers.len(),
        ids.len()
    );
    Ok(())
}
