//! `posthaste capture install`, `begin`, `skip` and `remove`.

use std::fmt;

use anyhow::{Context as _, anyhow, bail};
use posthaste_capture::{Installation, PauseOutcome, Position};
use serde::Serialize;
use serde_json::json;

use crate::captures::{CaptureFile, CaptureSelection};
use crate::database::Database;
use crate::terminal::Terminal;

/// Create the publication and the replication slot of each capture; transactions committed later
/// are captured
#[derive(clap::Args)]
pub(super) struct Install {
    #[command(flatten)]
    which: CaptureSelection,

    /// Print the statements instead of running them
    #[arg(long)]
    print: bool,

    /// Also send the existing rows of the tables
    #[arg(long, conflicts_with = "print")]
    copy: bool,
}

/// Restart a capture with a new slot after the old one was lost, and record the missed changes as a
/// gap
#[derive(clap::Args)]
pub(super) struct Begin {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,

    /// Also send the existing rows of the tables
    #[arg(long)]
    copy: bool,

    #[command(flatten)]
    config: CaptureFile,
}

/// Skip one change that cannot be captured, and record it as a gap
#[derive(clap::Args)]
pub(super) struct Skip {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,

    /// Position of the change, as shown by the error or by 'posthaste capture preview'
    #[arg(long, value_name = "POSITION")]
    at: Position,

    #[command(flatten)]
    config: CaptureFile,
}

/// Drop the replication slot and the publication of a capture; an unused slot retains the server's
/// log forever
#[derive(clap::Args)]
pub(super) struct Remove {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,

    #[command(flatten)]
    config: CaptureFile,
}

/// Pause a capture; the server retains its log until the capture is resumed
#[derive(clap::Args)]
pub(super) struct Pause {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,
}

/// Resume a paused capture where it stopped
#[derive(clap::Args)]
pub(super) struct Resume {
    /// Name of the capture
    #[arg(value_name = "CAPTURE")]
    capture: String,
}

#[derive(Serialize)]
#[serde(transparent)]
struct CaptureResult(Installation);

impl fmt::Display for CaptureResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Installation {
            name,
            slot,
            was_there,
            begins,
        } = &self.0;
        match was_there {
            true => write!(f, "{name}: already installed, captured up to {begins}"),
            false => write!(f, "{name}: capturing from {begins}, with slot {slot}"),
        }
    }
}

pub(super) async fn install(
    arguments: &Install,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let captures = arguments.which.read()?;
    let address = database.address().database();
    if arguments.print {
        let mut statements = Vec::new();
        for capture in &captures {
            let all = capture.statements(&address).await?;
            statements.extend(all.into_iter().map(|statement| format!("{statement};")));
        }
        return terminal.print_result(statements.join("\n"), &statements);
    }
    let mut done = Vec::with_capacity(captures.len());
    for capture in &captures {
        let name = &capture.name;
        let installed = capture.install(&address).await;
        done.push(CaptureResult(
            installed.with_context(|| format!("cannot install capture {name}"))?,
        ));
        if arguments.copy {
            let begun = capture.request_copies(&address).await;
            begun.map_err(|error| anyhow!("capture {name}: {error}"))?;
        }
    }
    terminal.print_results(&done, "no captures")
}

pub(super) async fn pause(
    arguments: &Pause,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let name = &arguments.capture;
    let changed = require_installed(name, posthaste_capture::pause(&client, name).await?)?;
    let text = match changed {
        true => {
            format!("{name} is paused; the server retains its log until the capture is resumed")
        }
        false => format!("{name} is already paused"),
    };
    terminal.print_result(text, &pause_result(name, true, changed))
}

pub(super) async fn resume(
    arguments: &Resume,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let name = &arguments.capture;
    let changed = require_installed(name, posthaste_capture::resume(&client, name).await?)?;
    let text = match changed {
        true => format!("{name} is resumed"),
        false => format!("{name} is not paused"),
    };
    terminal.print_result(text, &pause_result(name, false, changed))
}

/// Returns whether the capture changed.
fn require_installed(name: &str, outcome: PauseOutcome) -> anyhow::Result<bool> {
    match outcome {
        PauseOutcome::Changed => Ok(true),
        PauseOutcome::Unchanged => Ok(false),
        PauseOutcome::NoCapture => bail!("no capture {name} is installed"),
    }
}

fn pause_result(name: &str, is_paused: bool, changed: bool) -> serde_json::Value {
    json!({ "capture": name, "paused": is_paused, "changed": changed })
}

pub(super) async fn begin(
    arguments: &Begin,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let capture = arguments.config.capture(&arguments.capture)?;
    let database = database.address().database();
    let begun = async {
        let begun = capture.begin(&database).await?;
        if arguments.copy {
            capture.request_copies(&database).await?;
        }
        Ok::<_, posthaste_capture::Error>(CaptureResult(begun))
    };
    let begun = begun
        .await
        .map_err(|error| anyhow!("capture {}: {error}", capture.name))?;
    terminal.print_result(&begun, &begun)
}

pub(super) async fn skip(
    arguments: &Skip,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let capture = arguments.config.capture(&arguments.capture)?;
    let (name, at) = (&capture.name, arguments.at);
    let skipped = capture.skip(&database.address().database(), at).await;
    skipped.map_err(|error| anyhow!("capture {name}: {error}"))?;
    let more = json!({ "capture": name, "position": at.to_string() });
    terminal.print_result(format!("{name}: the change at {at} will be skipped"), &more)
}

pub(super) async fn remove(
    arguments: &Remove,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let capture = arguments.config.capture(&arguments.capture)?;
    let name = &capture.name;
    let removed = capture.remove(&database.address().database()).await;
    removed.map_err(|error| anyhow!("capture {name}: {error}"))?;
    let more = json!({ "capture": name });
    terminal.print_result(format!("{name}: removed"), &more)
}
