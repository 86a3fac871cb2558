//! Enqueues many jobs from lines of JSON, in transactions of bounded size.
//!
//! Committed jobs stay committed: an invalid line, a signal or a lost connection stops the rest,
//! and the message names the line at which to continue.

use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use posthaste::NewJob;
use posthaste_observe::format::pluralize;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio_postgres::Client;

use crate::database::Database;
use crate::failure;
use crate::progress::{Progress, Unit};
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Arguments per transaction in bytes, after which it is committed.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// The maximum length of a line in bytes. The store accepts 1 MiB of arguments, so a longer line is
/// no job, and may have no end.
const MAX_LINE_BYTES: u64 = 4 << 20;

/// The file to read and the size of transactions.
pub(super) struct EnqueuePlan<'a> {
    pub(super) file: &'a Path,
    pub(super) batch: usize,
    pub(super) skip: u64,
}

impl EnqueuePlan<'_> {
    fn source(&self) -> String {
        if self.is_stdin() {
            "standard input".to_owned()
        } else {
            self.file.display().to_string()
        }
    }

    fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }
}

#[derive(Serialize)]
struct Enqueued {
    jobs: u64,
    lines: u64,
}

pub(super) async fn enqueue(
    plan: &EnqueuePlan<'_>,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let mut client = database.address().connect().await?;
    let (input, size): (Box<dyn AsyncRead + Send + Unpin>, _) = if plan.is_stdin() {
        (Box::new(tokio::io::stdin()), None)
    } else {
        let opened = File::open(plan.file).await;
        let file = opened.map_err(|error| {
            let (source, reason) = (plan.source(), failure::io_error_text(&error));
            anyhow!(
                "cannot read {source}: {reason}. Give a file that can be read, or - for standard \
                 input."
            )
        })?;
        let size = file
            .metadata()
            .await
            .ok()
            .filter(|file| file.is_file())
            .map(|file| file.len());
        (Box::new(file), size)
    };
    let unit = if size.is_some() {
        Unit::Bytes
    } else {
        Unit::Jobs
    };
    let mut feed = LineEnqueuer {
        lines: JobLines::new(BufReader::with_capacity(1 << 20, input), plan.skip),
        progress: terminal.progress("enqueuing", size, unit),
        by_bytes: size.is_some(),
        enqueued: 0,
        committed_line: plan.skip,
    };
    let fed = feed.run(plan, &mut client, signals).await;
    let (jobs, lines) = (feed.enqueued, feed.committed_line);
    drop(feed);
    if let Err(error) = fed {
        let (message, where_now) = (failure::error_line(&error), resume_hint(plan, jobs, lines));
        bail!("{}. {where_now}.", message.trim_end_matches('.'));
    }
    let text = format!("enqueued {}", pluralize(jobs, "job", "jobs"));
    terminal.print_result(text, &Enqueued { jobs, lines })
}

fn resume_hint(plan: &EnqueuePlan<'_>, jobs: u64, lines: u64) -> String {
    let source = plan.source();
    match jobs {
        0 => format!("Nothing was enqueued from {source}"),
        _ if lines == 1 => {
            format!("The first line of {source} is enqueued: continue with --skip 1")
        }
        _ => format!(
            "The first {lines} lines of {source} are enqueued: continue with --skip {lines}"
        ),
    }
}

struct LineEnqueuer {
    lines: JobLines,
    progress: Progress,
    by_bytes: bool,
    enqueued: u64,
    /// The last line that is committed or was skipped.
    committed_line: u64,
}

impl LineEnqueuer {
    async fn run(
        &mut self,
        plan: &EnqueuePlan<'_>,
        client: &mut Client,
        signals: &Signals,
    ) -> anyhow::Result<()> {
        loop {
            let (jobs, last) = tokio::select! {
                batch = self.lines.next_batch(plan.batch) => batch?,
                () = signals.stop_token().cancelled() => return Err(anyhow!("stopped by a signal")),
            };
            if !jobs.is_empty() {
                self.commit(client, &jobs).await?;
            }
            self.committed_line = self.lines.number;
            self.enqueued += jobs.len() as u64;
            self.progress.set(if self.by_bytes {
                self.lines.bytes
            } else {
                self.enqueued
            });
            if last {
                return Ok(());
            }
        }
    }

    async fn commit(&self, client: &mut Client, jobs: &[NewJob]) -> anyhow::Result<()> {
        let (from, to) = (self.committed_line + 1, self.lines.number);
        let transaction = client.transaction().await?;
        posthaste::enqueue_many(&transaction, jobs)
            .await
            .with_context(|| format!("lines {from} to {to} were refused"))?;
        transaction.commit().await.with_context(|| {
            format!(
                "it is unknown whether lines {from} to {to} are enqueued: the answer to the commit \
                 was lost"
            )
        })
    }
}

/// The input, line by line.
struct JobLines {
    input: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    skip: u64,
    number: u64,
    bytes: u64,
    line: Vec<u8>,
}

impl JobLines {
    fn new(input: BufReader<Box<dyn AsyncRead + Send + Unpin>>, skip: u64) -> Self {
        Self {
            input,
            skip,
            number: 0,
            bytes: 0,
            line: Vec::new(),
        }
    }

    /// Reads the next jobs; returns whether they are the last ones.
    async fn next_batch(&mut self, limit: usize) -> anyhow::Result<(Vec<NewJob>, bool)> {
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while jobs.len() < limit && bytes < MAX_BATCH_BYTES {
            if !self.next_line().await? {
                return Ok((jobs, true));
            }
            let line = self.line.trim_ascii();
            if self.number <= self.skip || line.is_empty() {
                continue;
            }
            bytes += line.len();
            jobs.push(parse_job(line).map_err(|error| at_line(self.number, &error))?);
        }
        Ok((jobs, false))
    }

    async fn next_line(&mut self) -> anyhow::Result<bool> {
        self.line.clear();
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES);
        let read = limited
            .read_until(b'\n', &mut self.line)
            .await
            .context("cannot read further")?;
        self.number += u64::from(read > 0);
        self.bytes += read as u64;
        let cut = read as u64 == MAX_LINE_BYTES && self.line.last() != Some(&b'\n');
        anyhow::ensure!(!cut, "line {} is longer than 4 MiB", self.number);
        Ok(read > 0)
    }
}

/// Adds the line number to an error. The JSON parser counts lines within the one line that it has.
fn at_line(number: u64, error: &anyhow::Error) -> anyhow::Error {
    let Some(json) = error.downcast_ref::<serde_json::Error>() else {
        return anyhow!("line {number}: {}", failure::error_line(error));
    };
    let text = json.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    anyhow!("line {number}, column {}: {text}", json.column())
}

/// A line. Its fields are the names of the columns; an unknown field, such as a misspelt one, is an
/// error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobLine<'a> {
    name: String,
    #[serde(borrow)]
    kwargs: Option<&'a RawValue>,
    queue: Option<String>,
    priority: Option<i32>,
    scheduled_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    tag: Option<String>,
    unique_key: Option<String>,
    ordering_key: Option<String>,
    trace: Option<String>,
    /// Absent: the default; null: until the job expires.
    #[serde(default, deserialize_with = "deserialize_present")]
    max_attempts: Option<Option<i32>>,
}

fn deserialize_present<'de, D: serde::Deserializer<'de>>(
    value: D,
) -> Result<Option<Option<i32>>, D::Error> {
    Option::deserialize(value).map(Some)
}

fn parse_job(line: &[u8]) -> anyhow::Result<NewJob> {
    let line: JobLine<'_> = serde_json::from_slice(line)?;
    let mut job = match line.kwargs {
        Some(kwargs) => NewJob::new(&line.name, kwargs)?,
        None => NewJob::new(&line.name, &serde_json::Map::new())?,
    };
    if let Some(queue) = &line.queue {
        job = job.queue(queue);
    }
    if let Some(priority) = line.priority {
        job = job.priority(priority);
    }
    if let Some(at) = line.scheduled_at {
        job = job.scheduled_at(at);
    }
    if let Some(at) = line.expires_at {
        job = job.expires_at(at);
    }
    if let Some(tag) = &line.tag {
        job = job.tag(tag);
    }
    if let Some(key) = &line.unique_key {
        job = job.unique_key(key);
    }
    if let Some(key) = &line.ordering_key {
        job = job.ordering_key(key);
    }
    if let Some(trace) = &line.trace {
        job = job.trace(trace);
    }
    if let Some(limit) = line.max_attempts {
        job = job.max_attempts(limit);
    }
    Ok(job)
}
