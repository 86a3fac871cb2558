//! One small process beside the worker that ends the worker's commands when the worker is gone, be
//! it by SIGKILL.
//!
//! The kernel's own word for it, the parent-death signal, does not do: it is asked for in the child
//! between fork and exec, which is unsafe code; it comes when the *thread* that started the child
//! ends; it passes over grandchildren; and only Linux knows it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

/// The guard of this process.
pub(super) static GUARD: Guard = Guard(Mutex::new(State {
    process: None,
    groups: BTreeSet::new(),
}));

pub(super) struct Guard(Mutex<State>);

struct State {
    process: Option<Child>,
    groups: BTreeSet<i32>,
}

impl Guard {
    /// From now on this process group ends with the worker. Fails when there is nobody who could
    /// see to it.
    pub(super) fn watch(&self, group: i32) -> io::Result<()> {
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

    /// The group has ended. To be called before its leader is reaped: after that its number may be
    /// somebody else's.
    pub(super) fn forget(&self, group: i32) {
        let mut state = self.0.lock();
        state.groups.remove(&group);
        // A guard that is gone ends nobody; the next command gets another.
        let _ = state.send(&format!("- {group}\n"));
    }
}

impl State {
    fn send(&mut self, line: &str) -> io::Result<()> {
        let process = self.process.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let input = process.stdin.as_mut().ok_or(io::ErrorKind::NotFound)?;
        input.write_all(line.as_bytes())
    }

    /// The first guard, or the next after one that somebody ended.
    fn begin(&mut self) -> io::Result<()> {
        if let Some(mut gone) = self.process.take() {
            // Still alive it would end at the end of its input, and take all commands along.
            gone.kill()?;
            gone.wait()?;
        }
        let guard = Command::new("/bin/sh")
            .args(["-c", include_str!("guard.sh"), "posthaste-guard"])
            .env_clear()
            .current_dir("/")
            // What a terminal or a service manager sends to the worker's group does not reach it.
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
