//! Captures that posthaste.toml describes.

use std::fmt;
use std::path::PathBuf;

use anyhow::bail;
use posthaste_capture::{Capture, Error, Running, Until};
use serde_json::json;

use crate::connect::Address;
use crate::file::{self, DEFAULT_FILE, NeededSections};
use crate::terminal::Terminal;

/// Captures of a file.
#[derive(clap::Args)]
pub(crate) struct CaptureSelection {
    /// Names of captures (default: all in the file)
    #[arg(value_name = "CAPTURE")]
    captures: Vec<String>,

    #[command(flatten)]
    config: CaptureFile,
}

/// The option for the file.
#[derive(clap::Args)]
pub(crate) struct CaptureFile {
    /// File that defines captures
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
}

/// A capture that was started.
pub(crate) struct StartedCapture {
    pub(crate) name: String,
    queue: String,
    /// The destination of events that are sent without jobs.
    destination: Option<String>,
    pub(crate) running: Running,
}

impl fmt::Display for StartedCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.destination {
            Some(destination) => write!(f, "capture {}: to {destination}", self.name),
            None => write!(f, "capture {}: into queue {}", self.name, self.queue),
        }
    }
}

impl StartedCapture {
    /// Whether it sends events without jobs.
    pub(crate) fn is_direct(&self) -> bool {
        self.destination.is_some()
    }

    /// Prints that the capture runs.
    pub(crate) fn print_started(&self, terminal: &Terminal) -> anyhow::Result<()> {
        let more = json!({ "capture": self.name, "queue": self.queue });
        terminal.report_event("capture", &self.to_string(), &more)
    }

    /// Waits for the capture to end, and prints the error if it failed.
    pub(crate) async fn report_end(mut self, terminal: Terminal) {
        if let Err(error) = self.running.ended().await {
            terminal.print_remark(&format!("capture {}: {error}", self.name));
        }
    }
}

impl CaptureSelection {
    /// Reads the named captures, or all captures of the file.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Capture>> {
        let mut all = self.config.all_captures()?;
        if self.captures.is_empty() {
            return Ok(all);
        }
        for name in &self.captures {
            require_capture(&all, name)?;
        }
        all.retain(|one| self.captures.contains(&one.name));
        Ok(all)
    }
}

impl CaptureFile {
    /// Returns the capture of this name, or an error if the file has none.
    pub(crate) fn capture(&self, name: &str) -> anyhow::Result<Capture> {
        let all = self.all_captures()?;
        require_capture(&all, name).cloned()
    }

    fn all_captures(&self) -> anyhow::Result<Vec<Capture>> {
        let place = self.config.display();
        match file::read(&self.config, NeededSections::Captures)? {
            Some(file) if !file.captures.is_empty() => Ok(file.captures),
            Some(_) => bail!(
                "{place}: has no capture. Add a section [capture.<name>] with \
                              outbox."
            ),
            None => bail!(
                "{place} does not exist. Create it with a section [capture.<name>], or name \
                 another file with --config."
            ),
        }
    }
}

fn require_capture<'a>(all: &'a [Capture], name: &str) -> anyhow::Result<&'a Capture> {
    if let Some(capture) = all.iter().find(|one| one.name == name) {
        return Ok(capture);
    }
    let names: Vec<&str> = all.iter().map(|one| &*one.name).collect();
    bail!(
        "no capture is named {name}; the file has {}",
        names.join(", ")
    )
}

/// Starts each capture.
pub(crate) fn start(
    captures: Vec<Capture>,
    address: &Address,
    until: Until,
) -> Result<Vec<StartedCapture>, Error> {
    let start = |capture: Capture| {
        Ok(StartedCapture {
            name: capture.name.clone(),
            queue: capture.queue.clone(),
            destination: capture.direct.as_ref().map(|direct| direct.sender.label()),
            running: capture.start(address.database(), until)?,
        })
    };
    captures.into_iter().map(start).collect()
}
