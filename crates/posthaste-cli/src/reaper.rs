//! The first process of a container. The kernel makes it the parent of every orphan, and zombies
//! that it does not reap exhaust the process table. So the first process only reaps: the program
//! itself runs as its child, and no exit code that the program waits for is taken from it.

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

/// What is passed on to the program.
const PASSED_ON: [(SignalKind, Signal); 6] = [
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];

/// Whether this process is the first of a container.
pub(crate) fn is_first() -> bool {
    getpid().is_init()
}

/// Runs the program once more, as a child, until it ends: with its exit code.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::child())?;
        let (sender, mut received) = unbounded_channel();
        for (kind, passed) in PASSED_ON {
            forward_signals(kind, passed, sender.clone())?;
        }
        // A group of its own: what a terminal sends to the group in front comes once.
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .process_group(0)
            .spawn()?;
        let program = Pid::from_child(&child);
        move_to_foreground(program);
        loop {
            if let Some(status) = reaped(program)? {
                return Ok(ExitCode::from(code(status)));
            }
            tokio::select! {
                _ = ended.recv() => {}
                Some(signal) = received.recv() => {
                    // One that has just ended hears nothing more.
                    let _ = kill_process(program, signal);
                }
            }
        }
    })
}

/// A signal that is ignored stays so, also for the program.
fn forward_signals(
    kind: SignalKind,
    passed: Signal,
    sender: UnboundedSender<Signal>,
) -> anyhow::Result<()> {
    if let Some(mut listener) = signals::listener(kind)? {
        tokio::spawn(async move {
            while listener.recv().await.is_some() && sender.send(passed).is_ok() {}
        });
    }
    Ok(())
}

/// The group in front of the terminal, if there is one, is the program's.
fn move_to_foreground(program: Pid) {
    let (input, error) = (io::stdin(), io::stderr());
    let terminal = match (input.is_terminal(), error.is_terminal()) {
        (true, _) => input.as_fd(),
        (false, true) => error.as_fd(),
        (false, false) => return,
    };
    // Where it is not a terminal of ours, the program is not stopped by it either.
    let _ = tcsetpgrp(terminal, program);
}

/// Waits for all that have ended; the program's status if it is among them.
fn reaped(program: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => return Ok(Some(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// As a shell reports it.
fn code(status: WaitStatus) -> u8 {
    let by_signal = || status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
