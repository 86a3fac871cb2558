//! `posthaste jobs enqueue`: one job from its arguments, or many from lines of JSON.

mod lines;

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use posthaste::NewJob;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::database::Database;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Enqueue one job, or one job per line of JSON in a file
#[derive(clap::Args)]
#[command(after_help = LINES_HELP)]
pub(super) struct Arguments {
    /// Name of the job, by which workers find its handler
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,

    /// Arguments of the job, a JSON object
    #[arg(
        default_value = "{}",
        conflicts_with = "file",
        hide_default_value = true
    )]
    kwargs: String,

    #[command(flatten)]
    options: Options,

    /// File with one job per line; - reads standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "queue", "priority", "scheduled_at", "expires_at", "tag", "unique_key", "ordering_key",
            "max_attempts", "trace",
        ]
    )]
    file: Option<PathBuf>,

    /// Number of jobs per transaction, with --file
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        requires = "file",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    batch: u32,

    /// Number of lines to skip at the beginning, with --file
    #[arg(long, value_name = "LINES", default_value_t = 0, requires = "file")]
    skip: u64,
}

const LINES_HELP: &str = "A line of a file is an object with the same names:
  {\"name\": \
  \"mail.send\", \"kwargs\": {\"to\": 7}, \"queue\": \"mail\", \"scheduled_at\": \
  \"2027-01-01T00:00:00Z\"}
Only name is required. With max_attempts null, a job is retried until \
  it expires.";

#[derive(clap::Args)]
struct Options {
    /// Queue of the job (default: chosen by its name in posthaste.route)
    #[arg(long)]
    queue: Option<String>,

    /// Priority of the job; lower values run first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Earliest time to run the job, such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    scheduled_at: Option<Timestamp>,

    /// Latest time to run the job (default: 30 days after it is due)
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,

    /// Tag by which the job can be found
    #[arg(long)]
    tag: Option<String>,

    /// Unique key: at most one unfinished job can have it
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,

    /// Ordering key: jobs with the same key run one at a time, in order
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,

    /// Maximum number of attempts; 'unlimited' retries until the job expires
    #[arg(long, value_name = "N", value_parser = parse_max_attempts)]
    max_attempts: Option<Attempts>,

    /// Trace context of the job: a traceparent, optionally followed by a space and a tracestate
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
}

/// A maximum number of attempts; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempts(Option<i32>);

fn parse_max_attempts(text: &str) -> Result<Attempts, String> {
    match (text, text.parse()) {
        ("unlimited", _) => Ok(Attempts(None)),
        (_, Ok(number @ 1..)) => Ok(Attempts(Some(number))),
        _ => Err("give a number from 1, or 'unlimited'".to_owned()),
    }
}

#[derive(Serialize)]
struct Enqueued {
    id: i64,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    if let Some(file) = &arguments.file {
        let plan = lines::EnqueuePlan {
            file,
            batch: arguments.batch as usize,
            skip: arguments.skip,
        };
        return lines::enqueue(&plan, database, terminal, signals).await;
    }
    let job = arguments.job()?;
    let mut client = database.address().connect().await?;
    let transaction = client.transaction().await?;
    let id = posthaste::enqueue(posthaste::Unnamed(&transaction), &job).await?;
    transaction
        .commit()
        .await
        .context("the job may or may not be enqueued")?;
    terminal.print_result(id, &Enqueued { id: id.0 })
}

impl Arguments {
    fn job(&self) -> anyhow::Result<NewJob> {
        let name = self.name.as_deref().unwrap_or_default();
        let kwargs: &RawValue = serde_json::from_str(&self.kwargs).map_err(|error| {
            anyhow!(
                "the arguments are not JSON: {error}. Write an object in single quotes, such as \
                 '{{\"id\": 7}}'."
            )
        })?;
        let options = &self.options;
        let mut job = NewJob::new(name, kwargs)?;
        if let Some(queue) = &options.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = options.priority {
            job = job.priority(priority);
        }
        if let Some(at) = options.scheduled_at {
            job = job.scheduled_at(at);
        }
        if let Some(at) = options.expires_at {
            job = job.expires_at(at);
        }
        if let Some(tag) = &options.tag {
            job = job.tag(tag);
        }
        if let Some(key) = &options.unique_key {
            job = job.unique_key(key);
        }
        if let Some(key) = &options.ordering_key {
            job = job.ordering_key(key);
        }
        if let Some(Attempts(limit)) = options.max_attempts {
            job = job.max_attempts(limit);
        }
        if let Some(trace) = &options.trace {
            job = job.trace(trace);
        }
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_attempts_is_a_number_or_unlimited() {
        assert_eq!(parse_max_attempts("3"), Ok(Attempts(Some(3))));
        assert_eq!(parse_max_attempts("unlimited"), Ok(Attempts(None)));
        for wrong in ["0", "-1", "many", ""] {
            assert!(parse_max_attempts(wrong).is_err(), "{wrong}");
        }
    }
}
