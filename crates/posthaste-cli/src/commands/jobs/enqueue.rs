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

/// Enqueue one job, or one for each line of JSON in a file
#[derive(clap::Args)]
#[command(after_help = LINES_HELP)]
pub(super) struct Arguments {
    /// Name of the job: what a worker finds its handler by
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,

    /// Its arguments, a JSON object
    #[arg(
        default_value = "{}",
        conflicts_with = "file",
        hide_default_value = true
    )]
    kwargs: String,

    #[command(flatten)]
    options: Options,

    /// Enqueue one job per line of this file; - is standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "queue", "priority", "scheduled_at", "expires_at", "tag", "unique_key", "ordering_key",
            "max_attempts", "trace",
        ]
    )]
    file: Option<PathBuf>,

    /// With --file, commit after this many jobs
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        requires = "file",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    batch: u32,

    /// With --file, leave out this many lines at the beginning
    #[arg(long, value_name = "LINES", default_value_t = 0, requires = "file")]
    skip: u64,
}

const LINES_HELP: &str = "A line of a file is an object with the same names:
  {\"name\": \"mail.send\", \"kwargs\": {\"to\": 7}, \"queue\": \"mail\", \"scheduled_at\": \
  \"2027-01-01T00:00:00Z\"}
Only name is needed. max_attempts null means: until it expires.";

#[derive(clap::Args)]
struct Options {
    /// Put it in this queue; without it posthaste.route decides by the name
    #[arg(long)]
    queue: Option<String>,

    /// Give it this priority; the lower runs first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Run it not before this time (2027-01-01T00:00:00Z)
    #[arg(long, value_name = "TIME")]
    scheduled_at: Option<Timestamp>,

    /// Never run it after this time; 30 days after it is due if not given
    #[arg(long, value_name = "TIME")]
    expires_at: Option<Timestamp>,

    /// Give it a word to find it by
    #[arg(long)]
    tag: Option<String>,

    /// Have at most one job with this key at a time
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,

    /// Run jobs with the same key one at a time, in order
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,

    /// Try it this often at most; 'unlimited' means until it expires
    #[arg(long, value_name = "N", value_parser = max_attempts)]
    max_attempts: Option<Attempts>,

    /// Give it the trace that enqueues it: a traceparent, or a traceparent, a space and a
    /// tracestate
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
}

/// A maximum number of attempts; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempts(Option<i32>);

fn max_attempts(text: &str) -> Result<Attempts, String> {
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
        let plan = lines::Plan {
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
    terminal.result(id, &Enqueued { id: id.0 })
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
        assert_eq!(max_attempts("3"), Ok(Attempts(Some(3))));
        assert_eq!(max_attempts("unlimited"), Ok(Attempts(None)));
        for wrong in ["0", "-1", "many", ""] {
            assert!(max_attempts(wrong).is_err(), "{wrong}");
        }
    }
}
