//! A running adapter. Its output is timed here, so that no queue is measured by its own clock.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::roster::Peer;
use crate::database::Database;
use crate::processes::{TICKS_PER_SECOND, tree_ticks};

/// The limit for a line of an adapter.
const LONGEST_SILENCE: Duration = Duration::from_secs(180);

/// An adapter process that runs a command.
pub(crate) struct Adapter {
    name: &'static str,
    pid: u32,
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Adapter {
    /// Starts an adapter, which is killed when this is dropped.
    pub(crate) fn start(peer: Peer, database: &Database, words: &[&str]) -> Result<Self> {
        let mut command = peer.adapter(database.url())?;
        command.args(words);
        Self::spawn(peer.name, command)
    }

    /// Starts another program with the adapters' protocol.
    pub(crate) fn spawn(name: &'static str, mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the adapter of {name}"))?;
        Ok(Self {
            name,
            pid: child.id().context("no process")?,
            input: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().context("no output")?).lines(),
            child,
        })
    }

    /// Waits for a line that begins with this word; returns its time, and the rest of it.
    pub(crate) async fn hear(&mut self, word: &str) -> Result<(Instant, String)> {
        let name = self.name;
        loop {
            let line = timeout(LONGEST_SILENCE, self.lines.next_line()).await;
            let line = line.with_context(|| format!("{name} never says {word}"))??;
            let at = Instant::now();
            let Some(line) = line else {
                bail!("{name} ended without saying {word}");
            };
            if let Some(rest) = line.strip_prefix(word) {
                return Ok((at, rest.trim().to_owned()));
            }
        }
    }

    /// The ID of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Requests a worker to end.
    pub(crate) fn end(&mut self) {
        self.input = None;
    }

    /// The CPU seconds that it has used; available until it is waited for, also after its end.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        Ok(tree_ticks(self.pid)? as f64 / TICKS_PER_SECOND)
    }

    /// Waits for its end, and fails if it was not successful.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let status = timeout(LONGEST_SILENCE, self.child.wait()).await;
        let status = status.with_context(|| format!("{} does not end", self.name))??;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }
}

/// Creates a peer's schema; returns the version that it reports.
pub(crate) async fn set_up(peer: Peer, database: &Database) -> Result<String> {
    let mut adapter = Adapter::start(peer, database, &["setup"])?;
    let (_, version) = adapter.hear("version").await?;
    adapter.finish().await?;
    Ok(version)
}

/// Commits jobs as fast as the peer can.
pub(crate) async fn fill(peer: Peer, database: &Database, jobs: u64) -> Result<()> {
    let mut adapter = Adapter::start(peer, database, &["bulk", &jobs.to_string()])?;
    adapter.hear("end").await?;
    adapter.finish().await
}
