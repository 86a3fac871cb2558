//! `posthaste jobs`: look at jobs, let them run now, cancel them, send kept ones to work again.

mod answer;
mod show;

use std::fmt;

use clap::Subcommand;
use jiff::Timestamp;
use posthaste::Found;
use serde::Serialize;
use tokio_postgres::types::Type;
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
    Retry(Chosen),
    /// Cancel jobs: those that wait never run, those that run are told to end
    Cancel {
        /// Their numbers
        #[arg(required = true)]
        ids: Vec<i64>,
    },
    /// Send dead, discarded, expired and cancelled jobs to work again
    Redrive(Chosen),
}

/// Some of the jobs that a command is about.
#[derive(clap::Args)]
struct Chosen {
    /// Their numbers; without any, all that the conditions name
    #[arg(required_unless_present_any = ["queue", "name", "tag", "state", "error", "all"])]
    ids: Vec<i64>,
    #[command(flatten)]
    which: Which,
    /// Whichever there are
    #[arg(long)]
    all: bool,
    /// At most so many, those that have waited or were kept longest
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(i32).range(0..))]
    limit: i32,
}

impl Chosen {
    /// Runs a statement over them.
    async fn send(&self, client: &Client, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
        let ids = (!self.ids.is_empty()).then_some(&self.ids);
        let which = &self.which;
        client
            .query_typed(
                sql,
                &[
                    (&ids, Type::INT8_ARRAY),
                    (&which.queue, Type::TEXT),
                    (&which.name, Type::TEXT),
                    (&which.tag, Type::TEXT),
                    (&which.state, Type::TEXT),
                    (&which.error, Type::TEXT),
                    (&self.limit, Type::INT4),
                ],
            )
            .await
    }
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
        Command::Retry(chosen) => answer::retry(&client, terminal, chosen).await,
        Command::Cancel { ids } => answer::cancel(&client, terminal, ids).await,
        Command::Redrive(chosen) => redrive(&client, terminal, chosen).await,
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

    fn found(job: &Found) -> Self {
        Self {
            id: job.id.0,
            name: job.name.clone(),
            queue: job.queue.clone(),
            priority: job.priority,
            state: job.state.to_string(),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            scheduled_at: job.scheduled_at,
            tag: job.tag.clone(),
            last_error: job.last_error.clone(),
        }
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
        .query_typed(
            include_str!("jobs/list.sql"),
            &[
                (&which.queue, Type::TEXT),
                (&which.name, Type::TEXT),
                (&which.tag, Type::TEXT),
                (&which.state, Type::TEXT),
                (&which.error, Type::TEXT),
                (&i64::from(limit), Type::INT8),
            ],
        )
        .await?;
    let lines: Result<Vec<Line>, _> = rows.iter().map(Line::of).collect();
    let list = List(lines?);
    terminal.result(&list, &list)
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

async fn redrive(client: &Client, terminal: &Terminal, chosen: &Chosen) -> anyhow::Result<()> {
    let rows = chosen
        .send(client, include_str!("jobs/redrive.sql"))
        .await?;
    let redriven = Redriven {
        redriven: rows.first().map_or(Ok(0), |row| row.try_get(0))?,
    };
    terminal.result(&redriven, &redriven)
}
