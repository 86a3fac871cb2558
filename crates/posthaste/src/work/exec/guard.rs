//! A small process beside the worker that ends the worker's commands when the worker has ended,
//! even by SIGKILL.
//!
//! The parent-death signal of the kernel is not sufficient. It is requested in the child between
//! fork and exec, which is unsafe code; it is sent when the *thread* that started the child ends;
//! it does not reach grandchildren; and only Linux has it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

/// The guard of this process.
pub(super) static GUARD: GuardProcess = GuardProcess(Mutex::new(GuardState {
    process: None,
    groups: BTreeSet::new(),
}));

pub(super) struct GuardProcess(Mutex<GuardState>);

struct GuardState {
    process: Option<Child>,
    groups: BTreeSet<i32>,
}

impl GuardProcess {
    /// Makes this process group end with the worker. Fails if no guard can be started.
    pub(super) fn guard_group(&self, group: i32) -> io::Result<()> {
        let mut state = self.0.lock();
        state.groups.insert(group);
        let sent = state
            .send(&format!("+ {group}\n"))
            .or_else(|_| state.begin());
        if sent.is_err() {
            state.groups.remove(&group);
        }
        sent
    }

    /// Records that the group has ended. Must be called before its leader is reaped: after that its
    /// number may be used again.
    pub(super) fn release_group(&self, group: i32) {
        let mut state = self.0.lock();
        state.groups.remove(&group);
        // A guard that has ended kills no group; the next command starts another guard.
        let _ = state.send(&format!("- {group}\n"));
    }
}

impl GuardState {
    fn send(&mut self, line: &str) -> io::Result<()> {
        let process = self.process.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let input = process.stdin.as_mut().ok_or(io::ErrorKind::NotFound)?;
        input.write_all(line.as_bytes())
    }

    /// Starts the first guard, or another after one that was killed.
    fn begin(&mut self) -> io::Result<()> {
        if let Some(mut gone) = self.process.take() {
            // If it is still alive, it would end when its input ends, and kill all commands.
            gone.kill()?;
            gone.wait()?;
        }
        let guard = Command::new("/bin/sh")
            .args(["-c", include_str!("guard.sh"), "posthaste-guard"])
            .env_clear()
            .current_dir("/")
            // Signals of a terminal or a service manager to the worker's group do not reach the
            // guard.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(guard);
        let mut all = String::new();
        for group in &self.groups {
            let _ = writeln!(all, "+ {group}");
        }
        self.send(&all)
    }
}
