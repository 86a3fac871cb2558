//! `posthaste jobs`: look at jobs, let them run now, cancel them, send kept ones to work again.

mod retry;
mod show;

use std::collections::HashMap;
use std::fmt;

use anyhow::ensure;
use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::{Client, Row};

use crate::database::Database;
use crate::terminal::Terminal;

/// Look at jobs, let them run now, cancel them, send kept ones to work again
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show jobs that are not done, the newest first
    List {
        #[command(flatten)]
        which: Which,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// Show one job with its arguments and its failed attempts, also when it is done
    Show {
        /// Its number
        id: i64,
    },
    /// Let scheduled jobs, and those that wait for their next attempt, run now
    Retry {
        /// Their numbers; without any, all that the conditions name
        #[arg(required_unless_present_any = ["queue", "name", "tag", "state", "error", "all"])]
        ids: Vec<i64>,
        #[command(flatten)]
        which: Which,
        /// Whatever waits
        #[arg(long)]
        all: bool,
        /// At most so many, those that are due first
        #[arg(long, value_name = "N", default_value_t = 1_000)]
        limit: u32,
    },
    /// Cancel jobs: those that wait never run, those that run are told to end
    Cancel {
        /// Their numbers
        #[arg(required = true)]
        ids: Vec<i64>,
    },
    /// Send dead, discarded, expired and cancelled jobs to work again
    Redrive {
        /// Their numbers; without any, all that the conditions name
        #[arg(required_unless_present_any = ["queue", "name", "tag", "state", "error", "all"])]
        ids: Vec<i64>,
        #[command(flatten)]
        which: Which,
        /// Whatever was kept
        #[arg(long)]
        all: bool,
        /// At most so many, the oldest first
        #[arg(long, value_name = "N", default_value_t = 1_000)]
        limit: u32,
    },
}

#[derive(clap::Args)]
struct Which {
    /// Of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this name
    #[arg(long)]
    name: Option<String>,
    /// With this tag
    #[arg(long)]
    tag: Option<String>,
    /// In this state
    #[arg(long)]
    state: Option<String>,
    /// Whose last error is like this; % stands for any text
    #[arg(long, value_name = "PATTERN")]
    error: Option<String>,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    match &arguments.command {
        Command::List { which, limit } => list(&client, terminal, which, *limit).await,
        Command::Show { id } => show::show(&client, terminal, *id).await,
        Command::Retry {
            ids, which, limit, ..
        } => retry::retry(&client, terminal, ids, which, *limit).await,
        Command::Cancel { ids } => cancel(&client, terminal, ids).await,
        Command::Redrive {
            ids, which, limit, ..
        } => redrive(&client, terminal, ids, which, *limit).await,
    }
}

/// A job in a list.
#[derive(Serialize)]
struct Line {
    id: i64,
    name: String,
    queue: String,
    priority: i32,
    state: String,
    attempt: i32,
    max_attempts: Option<i32>,
    scheduled_at: Timestamp,
    tag: String,
    last_error: Option<String>,
}

impl Line {
    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            queue: row.try_get("queue")?,
            priority: row.try_get("priority")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            max_attempts: row.try_get("max_attempts")?,
            scheduled_at: row.try_get("scheduled_at")?,
            tag: row.try_get("tag")?,
            last_error: row.try_get("last_error")?,
        })
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct List(Vec<Line>);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "no such jobs");
        }
        let wide = |of: fn(&Line) -> &str, least: usize| {
            let widths = self.0.iter().map(|line| of(line).chars().count());
            widths.max().unwrap_or(0).clamp(least, 40)
        };
        let (name, queue) = (wide(|line| &line.name, 4), wide(|line| &line.queue, 5));
        write!(
            f,
            "{:>12}  {:name$}  {:queue$}  {:10}  {:>7}  error",
            "id", "name", "queue", "state", "attempt"
        )?;
        for line in &self.0 {
            let error = line.last_error.as_deref().unwrap_or_default();
            let error: String = error.chars().take(80).collect();
            write!(
                f,
                "\n{:>12}  {:name$}  {:queue$}  {:10}  {:>7}  {error}",
                line.id, line.name, line.queue, line.state, line.attempt
            )?;
        }
        Ok(())
    }
}

async fn list(
    client: &Client,
    terminal: &Terminal,
    which: &Which,
    limit: u32,
) -> anyhow::Result<()> {
    let rows = client
        .query(
            include_str!("jobs/list.sql"),
            &[
                &which.queue,
                &which.name,
                &which.tag,
                &which.state,
                &which.error,
                &i64::from(limit),
            ],
        )
        .await?;
    let lines: Result<Vec<Line>, _> = rows.iter().map(Line::of).collect();
    let list = List(lines?);
    terminal.result(&list, &list)
}

#[derive(Serialize)]
struct Cancelled {
    id: i64,
    /// None: it is done, or there never was one.
    state: Option<String>,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Answers(Vec<Cancelled>);

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.iter().map(|job| match job.state.as_deref() {
            Some("cancelled") => format!("job {} is cancelled", job.id),
            Some("running") => format!("job {} is running; its worker is told to end it", job.id),
            Some(state) => format!("job {} had ended before: {state}", job.id),
            None => format!("job {} is done, or there never was one", job.id),
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// What became of each, part by part: a call that meets many lanes leaves the rest waiting, so that one transaction holds few locks.
async fn cancel_all(client: &Client, ids: &[i64]) -> anyhow::Result<HashMap<i64, String>> {
    let mut states = HashMap::new();
    let mut left = ids.to_vec();
    while !left.is_empty() {
        let rows = client
            .query(include_str!("jobs/cancel.sql"), &[&left])
            .await?;
        left.clear();
        for row in rows {
            let (id, state): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
            if state == "claimable" {
                left.push(id);
            } else {
                states.insert(id, state);
            }
        }
    }
    Ok(states)
}

async fn cancel(client: &Client, terminal: &Terminal, ids: &[i64]) -> anyhow::Result<()> {
    let states = cancel_all(client, ids).await?;
    let answers = Answers(
        ids.iter()
            .map(|id| Cancelled {
                id: *id,
                state: states.get(id).cloned(),
            })
            .collect(),
    );
    terminal.result(&answers, &answers)?;
    let gone = answers.0.iter().filter(|job| job.state.is_none()).count();
    ensure!(
        gone == 0,
        "{gone} of {} jobs could not be found.",
        ids.len()
    );
    Ok(())
}

#[derive(Serialize)]
struct Redriven {
    redriven: i64,
}

impl fmt::Display for Redriven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.redriven {
            0 => write!(f, "no kept job is so"),
            1 => write!(f, "1 job is sent to work again"),
            jobs => write!(f, "{jobs} jobs are sent to work again"),
        }
    }
}

async fn redrive(
    client: &Client,
    terminal: &Terminal,
    ids: &[i64],
    which: &Which,
    limit: u32,
) -> anyhow::Result<()> {
    let ids = (!ids.is_empty()).then_some(ids);
    let limit = i32::try_from(limit)?;
    let row = client
        .query_one(
            include_str!("jobs/redrive.sql"),
            &[
                &ids,
                &which.queue,
                &which.name,
                &which.tag,
                &which.state,
                &which.error,
                &limit,
            ],
        )
        .await?;
    let redriven = Redriven {
        redriven: row.try_get(0)?,
    };
    terminal.result(&redriven, &redriven)
}
