//! `posthaste capture preview`, `status` and `gaps`.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::anyhow;
use posthaste_capture::{Event, Gap, Overview, accept_gap};
use posthaste_observe::format::{age, pluralize};
use posthaste_observe::redact;
use serde::Serialize;

use crate::captures::CaptureFile;
use crate::database::Database;
use crate::failure::CommandExit;
use crate::terminal::Terminal;

/// Show the next messages of a capture without consuming them
#[derive(clap::Args)]
pub(super) struct Preview {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,

    /// Approximate number of messages to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    #[command(flatten)]
    config: CaptureFile,
}

/// Show installed captures: state, position, lag, and the log that the server retains
#[derive(clap::Args)]
pub(super) struct Status {}

/// List changes that were not captured, with reasons; exit code 3 if one is not accepted
#[derive(clap::Args)]
pub(super) struct Gaps {
    /// Name of the capture (default: all)
    #[arg(value_name = "CAPTURE")]
    capture: Option<String>,

    /// Accept the gap with this number, so that it is no longer reported
    #[arg(long, value_name = "N")]
    accept: Option<i64>,
}

/// A message as it would be sent.
#[derive(Serialize)]
struct Message {
    id: String,
    name: String,
    key: Option<String>,
    headers: BTreeMap<String, String>,
    /// The body; bytes that are not UTF-8 are replaced.
    body: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.name)?;
        if let Some(key) = &self.key {
            write!(f, " key={key}")?;
        }
        for (name, value) in &self.headers {
            write!(f, " {name}={value}")?;
        }
        write!(f, "\n{}", self.body)
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct CaptureStatus<T>(T);

impl fmt::Display for CaptureStatus<Overview> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overview {
            name,
            stopped,
            done,
            unconfirmed_bytes,
            retained_bytes,
            gaps,
            lag_seconds,
            copied_rows,
            copy_rows,
            copy_problem,
            path_problem,
            ..
        } = &self.0;
        let state = self.0.state();
        let done = done.as_deref().unwrap_or("nowhere");
        let megabytes = |bytes: &Option<i64>| bytes.unwrap_or(0) as f64 / 1_048_576.0;
        write!(
            f,
            "{name}: {state}, captured up to {done}, log written since {:.1} MiB, \
             retained log {:.1} MiB",
            megabytes(unconfirmed_bytes),
            megabytes(retained_bytes)
        )?;
        if let Some(lag) = lag_seconds.filter(|lag| *lag > 0.0) {
            write!(f, ", {} late", age(lag))?;
        }
        if let Some(rows) = copied_rows {
            write!(
                f,
                ", {rows} of about {} rows copied",
                copy_rows.unwrap_or(0)
            )?;
        }
        if let Some(problem) = copy_problem {
            write!(f, ", a copy failed: {problem}")?;
        }
        if *gaps > 0 {
            let gaps = pluralize(*gaps, "gap", "gaps");
            write!(f, ", {gaps} ('posthaste capture gaps {name}')")?;
        }
        match stopped.as_ref().or(path_problem.as_ref()) {
            Some(reason) => write!(f, "; {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CaptureStatus<Gap> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = &self.0;
        let ends = gap.ends.as_deref().unwrap_or("now");
        write!(
            f,
            "{}: {} from {} to {ends}",
            gap.id, gap.capture, gap.begins
        )?;
        if !gap.tables.is_empty() {
            write!(f, " ({})", gap.tables.join(", "))?;
        }
        write!(f, ", seen at {}: {}", gap.seen_at, gap.reason)?;
        match (&gap.accepted_at, &gap.accepted_by) {
            (Some(at), Some(who)) => write!(f, "; accepted at {at} by {who}"),
            _ => Ok(()),
        }
    }
}

pub(super) async fn preview(
    arguments: &Preview,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let capture = arguments.config.capture(&arguments.capture)?;
    let address = database.address().database();
    let events = capture.preview(&address, arguments.limit).await;
    let events = events.map_err(|error| anyhow!("capture {}: {error}", capture.name))?;
    let message = |event: Event| Message {
        id: event.id.to_string(),
        name: event.name,
        key: event.key,
        headers: event.headers.into_iter().collect(),
        body: String::from_utf8_lossy(&event.body).into_owned(),
    };
    let messages: Vec<Message> = events.into_iter().map(message).collect();
    terminal.print_results(&messages, "nothing is waiting to be captured")
}

pub(super) async fn status(database: &Database, terminal: &Terminal) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let mut captures = posthaste_capture::list_captures(&client).await?;
    captures.iter_mut().for_each(redact::capture_errors);
    let captures: Vec<_> = captures.into_iter().map(CaptureStatus).collect();
    terminal.print_results(&captures, "no capture is installed")
}

pub(super) async fn gaps(
    arguments: &Gaps,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    if let Some(number) = arguments.accept
        && !accept_gap(&client, number).await?
    {
        anyhow::bail!("no unaccepted gap has the number {number}");
    }
    let gaps = posthaste_capture::list_gaps(&client, arguments.capture.as_deref()).await?;
    let left = gaps.iter().filter(|gap| gap.accepted_at.is_none()).count();
    let gaps: Vec<_> = gaps.into_iter().map(CaptureStatus).collect();
    terminal.print_results(&gaps, "no gaps")?;
    match left {
        0 => Ok(()),
        left => Err(CommandExit {
            code: 3,
            line: format!(
                "{} not accepted. Use --accept N to accept a gap.",
                pluralize(left, "gap is", "gaps are")
            ),
        }
        .into()),
    }
}
