//! Starts processes, signals them and waits for them.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::READY_POLL;

pub(super) fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("no such process")?;
    kill_process(pid, signal).with_context(|| format!("sending {signal:?} to {pid:?}"))
}

/// Waits for a child process, at most this long.
pub(super) fn wait(process: &mut Child, bound: Duration) -> anyhow::Result<ExitStatus> {
    let deadline = Instant::now() + bound;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        ensure!(Instant::now() < deadline, "it still ran after {bound:?}");
        std::thread::sleep(READY_POLL);
    }
}

/// Runs a command to its end, and fails with its output.
pub(super) fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command
        .output()
        .with_context(|| format!("running {}", name(command).display()))?;
    ensure!(
        output.status.success(),
        "{} failed ({}):\n{}{}",
        name(command).display(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn name(command: &Command) -> &Path {
    Path::new(command.get_program())
}
