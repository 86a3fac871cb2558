//! The first process of a container. The kernel makes it the parent of every orphan, and zombies
//! that it does not reap exhaust the process table. So the first process only reaps: the program
//! runs as its child, where reaping cannot take an exit code that the program waits for.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use rustix::termios::tcsetpgrp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::signals;

/// Signals that are forwarded to the program.
const FORWARDED_SIGNALS: [(SignalKind, Signal); 6] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];

/// Whether this process is the first one of a container.
pub(crate) fn is_init() -> bool {
    getpid().is_init()
}

/// Runs the program again as a child process and returns its exit code.
pub(crate) fn run_as_init() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::child())?;
        let (sender, mut received) = unbounded_channel();
        for (kind, passed) in FORWARDED_SIGNALS {
            forward_signals(kind, passed, sender.clone())?;
        }
        // A separate process group: a signal that the terminal sends to the foreground group
        // arrives once.
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .process_group(0)
            .spawn()?;
        let program = Pid::from_child(&child);
        move_to_foreground(program);
        loop {
            if let Some(status) = reap(program)? {
                return Ok(ExitCode::from(shell_exit_code(status)));
            }
            tokio::select! {
                _ = ended.recv() => {}
                Some(signal) = received.recv() => {
                    // The program may have ended just before.
                    let _ = kill_process(program, signal);
                }
            }
        }
    })
}

/// Forwards a signal. An ignored signal remains ignored, by the program too.
fn forward_signals(
    kind: SignalKind,
    passed: Signal,
    sender: UnboundedSender<Signal>,
) -> anyhow::Result<()> {
    if let Some(mut listener) = signals::stream_unless_ignored(kind)? {
        tokio::spawn(async move {
            while listener.recv().await.is_some() && sender.send(passed).is_ok() {}
        });
    }
    Ok(())
}

/// Makes the program's process group the foreground group of the terminal, if there is a terminal.
fn move_to_foreground(program: Pid) {
    let (input, error) = (io::stdin(), io::stderr());
    let terminal = match (input.is_terminal(), error.is_terminal()) {
        (true, _) => input.as_fd(),
        (false, true) => error.as_fd(),
        (false, false) => return,
    };
    // If this is not our controlling terminal, the program is not stopped by it either.
    let _ = tcsetpgrp(terminal, program);
}

/// Reaps all ended processes; returns the status of the program if it has ended.
fn reap(program: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => return Ok(Some(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the exit code that a shell would report.
fn shell_exit_code(status: WaitStatus) -> u8 {
    let by_signal = || status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
