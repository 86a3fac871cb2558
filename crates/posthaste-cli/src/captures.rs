//! The captures of posthaste.toml.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use posthaste_capture::{Capture, Error, Running, Until};
use serde_json::json;

use crate::connect::Address;
use crate::file::{self, FILE, Wanted};
use crate::terminal::Terminal;

/// Which captures, of which file.
#[derive(clap::Args)]
pub(crate) struct WhichCaptures {
    /// The captures; without any, all of the file
    #[arg(value_name = "CAPTURE")]
    captures: Vec<String>,

    #[command(flatten)]
    config: Config,
}

/// Which file is read, as typed.
#[derive(clap::Args)]
pub(crate) struct Config {
    /// The file that describes captures
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,
}

/// A capture that was started.
pub(crate) struct Started {
    pub(crate) name: String,
    queue: String,
    /// Where events go without jobs.
    destination: Option<String>,
    pub(crate) running: Running,
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.destination {
            Some(destination) => write!(f, "capture {}: to {destination}", self.name),
            None => write!(f, "capture {}: into queue {}", self.name, self.queue),
        }
    }
}

impl Started {
    /// Whether it sends without jobs.
    pub(crate) fn is_direct(&self) -> bool {
        self.destination.is_some()
    }

    /// Says that it is at it.
    pub(crate) fn tell(&self, terminal: &Terminal) -> anyhow::Result<()> {
        let more = json!({ "capture": self.name, "queue": self.queue });
        terminal.event("capture", &self.to_string(), &more)
    }

    /// Says when it has stopped.
    pub(crate) async fn watch(mut self, terminal: Terminal) {
        if let Err(error) = self.running.ended().await {
            terminal.note(&format!("capture {}: {error}", self.name));
        }
    }
}

impl WhichCaptures {
    /// Those that were named, or all of the file.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Capture>> {
        let mut all = self.config.all()?;
        if self.captures.is_empty() {
            return Ok(all);
        }
        for name in &self.captures {
            require(&all, name)?;
        }
        all.retain(|one| self.captures.contains(&one.name));
        Ok(all)
    }
}

impl Config {
    /// The capture of this name.
    pub(crate) fn one(&self, name: &str) -> anyhow::Result<Capture> {
        let all = self.all()?;
        require(&all, name)?;
        let mut all = all.into_iter();
        all.find(|one| one.name == name)
            .context("this capture is not installed")
    }

    fn all(&self) -> anyhow::Result<Vec<Capture>> {
        let place = self.config.display();
        match file::read(&self.config, Wanted::Captures)? {
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

fn require(all: &[Capture], name: &str) -> anyhow::Result<()> {
    if all.iter().any(|one| one.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = all.iter().map(|one| &*one.name).collect();
    bail!(
        "no capture is named {name}; the file has {}",
        names.join(", ")
    )
}

/// Begins to run each of them.
pub(crate) fn start(
    captures: Vec<Capture>,
    address: &Address,
    until: Until,
) -> Result<Vec<Started>, Error> {
    let start = |capture: Capture| {
        Ok(Started {
            name: capture.name.clone(),
            queue: capture.queue.clone(),
            destination: capture.direct.as_ref().map(|direct| direct.sender.label()),
            running: capture.start(address.database(), until)?,
        })
    };
    captures.into_iter().map(start).collect()
}
