//! `posthaste jobs show`: one job in any state, and its failed attempts.

use std::fmt::{self, Write as _};

use anyhow::Context as _;
use jiff::Timestamp;
use posthaste::{Client, Failure, FoundJob, JobId};
use posthaste_observe::redact::error_text;
use serde::Serialize;
use serde_json::value::RawValue;

use super::JobRow;
use crate::terminal::{Terminal, escape_name};

#[derive(Serialize)]
struct JobDetails {
    #[serde(flatten)]
    line: JobRow,
    enqueued_at: Timestamp,
    expires_at: Timestamp,
    unique_key: Option<String>,
    ordering_key: Option<String>,
    trace: Option<String>,
    worker: Option<i64>,
    worker_name: Option<String>,
    claimed_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    delivery_id: String,
    kwargs: Box<RawValue>,
    failures: Vec<FailedAttempt>,
}

#[derive(Serialize)]
struct FailedAttempt {
    attempt: i32,
    at: Timestamp,
    outcome: String,
    worker: Option<i64>,
    worker_name: Option<String>,
    error: Option<String>,
}

impl FailedAttempt {
    fn new(failure: Failure) -> Self {
        Self {
            attempt: failure.attempt,
            at: failure.at,
            outcome: failure.outcome,
            worker: failure.worker,
            worker_name: failure.worker_name,
            error: failure.error.as_deref().map(error_text),
        }
    }
}

impl JobDetails {
    fn new(job: FoundJob, failures: Vec<Failure>) -> anyhow::Result<Self> {
        Ok(Self {
            kwargs: RawValue::from_string(job.kwargs_json().to_owned())?,
            line: JobRow::from_found(&job),
            enqueued_at: job.enqueued_at,
            expires_at: job.expires_at,
            unique_key: job.unique_key,
            ordering_key: job.ordering_key,
            trace: job.trace,
            worker: job.worker,
            worker_name: job.worker_name,
            claimed_at: job.claimed_at,
            ended_at: job.ended_at,
            delivery_id: job.delivery_id.to_string(),
            failures: failures.into_iter().map(FailedAttempt::new).collect(),
        })
    }

    /// Returns the worker that runs the job or ran it last.
    fn worker(&self) -> Option<String> {
        let id = self.worker?;
        let name = self.worker_name.as_deref().unwrap_or("forgotten");
        let since = self.claimed_at.map(|at| format!(", since {at}"));
        Some(format!("{id} ({name}){}", since.unwrap_or_default()))
    }
}

impl fmt::Display for JobDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = &self.line;
        let attempts = match line.max_attempts {
            Some(most) => format!("{} of {most}", line.attempts),
            None => format!("{}, without a limit", line.attempts),
        };
        let none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let mut text = String::new();
        for (label, value) in [
            ("job", line.id.to_string()),
            ("name", line.name.clone()),
            ("queue", line.queue.clone()),
            ("priority", line.priority.to_string()),
            ("state", line.state.clone()),
            ("worker", none(self.worker())),
            ("attempts", attempts),
            ("enqueued", self.enqueued_at.to_string()),
            ("due", line.scheduled_at.to_string()),
            ("expires", self.expires_at.to_string()),
            ("ended", none(self.ended_at.map(|at| at.to_string()))),
            (
                "tag",
                none(Some(line.tag.clone()).filter(|tag| !tag.is_empty())),
            ),
            ("unique key", none(self.unique_key.clone())),
            ("ordering key", none(self.ordering_key.clone())),
            ("trace", none(self.trace.clone())),
            ("delivery id", self.delivery_id.clone()),
            ("last error", none(line.last_error.clone())),
            ("kwargs", self.kwargs.get().to_owned()),
        ] {
            writeln!(text, "{label:14}{}", escape_name(&value))?;
        }
        f.write_str(text.trim_end())?;
        write_attempts(f, &self.failures)
    }
}

/// Writes the failed attempts, the first one first.
fn write_attempts(f: &mut fmt::Formatter<'_>, failures: &[FailedAttempt]) -> fmt::Result {
    if failures.is_empty() {
        return Ok(());
    }
    let name =
        |failure: &FailedAttempt| escape_name(failure.worker_name.as_deref().unwrap_or_default());
    let wide = failures.iter().map(|one| name(one).chars().count()).max();
    let wide = wide.unwrap_or(0).clamp(6, 40);
    write!(
        f,
        "\n\n{:>7}  {:20}  {:9}  {:wide$}  error",
        "attempt", "ended", "outcome", "worker"
    )?;
    for failure in failures {
        write!(
            f,
            "\n{:>7}  {:20}  {:9}  {:wide$}  {}",
            failure.attempt,
            failure.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            failure.outcome,
            name(failure),
            escape_name(failure.error.as_deref().unwrap_or_default())
        )?;
    }
    Ok(())
}

pub(super) async fn show(
    client: &tokio_postgres::Client,
    terminal: &Terminal,
    id: i64,
) -> anyhow::Result<()> {
    let id = JobId(id);
    let mut jobs = Client::new(client);
    let job = jobs
        .find(id)
        .await?
        .with_context(|| format!("job {id} does not exist, or ended and is no longer kept."))?;
    let shown = JobDetails::new(job, jobs.failures(id).await?)?;
    terminal.print_result(&shown, &shown)
}
