//! A running adapter: what it says is timed here, so that no queue is measured by its own clock.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::roster::Peer;
use crate::database::Database;
use crate::processes::{TICKS_PER_SECOND, tree_ticks};

/// An adapter that says nothing for so long is given up.
const LONGEST_SILENCE: Duration = Duration::from_secs(180);

/// A process that was given a verb.
pub(crate) struct Adapter {
    name: &'static str,
    pid: u32,
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Adapter {
    /// Starts one; it is killed when this is dropped.
    pub(crate) fn start(peer: Peer, database: &Database, words: &[&str]) -> Result<Self> {
        let mut command = peer.adapter(database.url())?;
        command.args(words);
        Self::spawn(peer.name, command)
    }

    /// The same of any program that speaks as adapters do.
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

    /// Waits for a line that begins with this word; when it came, and the rest of it.
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

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Tells it to end, where it works until then.
    pub(crate) fn end(&mut self) {
        self.input = None;
    }

    /// Processor seconds that it has used; also after its end, until it is waited for.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        Ok(tree_ticks(self.pid)? as f64 / TICKS_PER_SECOND)
    }

    /// Waits for its end, which must be a good one.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let status = timeout(LONGEST_SILENCE, self.child.wait()).await;
        let status = status.with_context(|| format!("{} does not end", self.name))??;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }
}

/// Makes a peer's schema; the version that it says.
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
