//! Runs a command, such as `cargo nextest run`, with servers that all its test processes share.
//!
//! Each server is started when the first test requests it. The servers end with the command. If
//! this process is killed, the command and the processes that it started receive a request to end.
//! The command may open as many files as the machine allows, and does not ignore signals that this
//! process was started to ignore.

use std::process::{ExitCode, Stdio};

use anyhow::Context;
use posthaste_testkit::{TestRun, more_descriptors};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next();
    let program = program.context("usage: posthaste-test-run COMMAND [ARGUMENT]…")?;
    more_descriptors()?;
    let run = TestRun::start()?;
    let mut command = run.command(&program, arguments);
    command.stdin(Stdio::null());
    let mut child = tokio::process::Command::from(command)
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let _watched = run.watch(child.id().context("it ended at once")?)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = interrupt.recv() => run.pass_on(child.id(), false),
            _ = terminate.recv() => run.pass_on(child.id(), true),
        }
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
