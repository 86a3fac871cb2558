//! A small process that cleans up after a test process, however that process ends.
//!
//! Statics are never dropped and SIGKILL runs no code, so a shell does the cleanup: it waits for
//! the end of a pipe that only the test process holds. `prctl(PR_SET_PDEATHSIG)` does not work
//! here: it fires when the *thread* that started the child ends, and every test has a separate
//! thread.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

const SCRIPT: &str = include_str!("watchdog.sh");

/// Acts when it is dropped, or when the process that holds it has ended.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Stops the server in this folder immediately and removes the folder.
    pub(crate) fn over_server(folder: &Path) -> anyhow::Result<Self> {
        Self::spawn(&["server".as_ref(), folder.as_os_str()])
    }

    /// Removes this folder, whose users have separate watchdogs.
    pub(crate) fn over_folder(folder: &Path) -> anyhow::Result<Self> {
        Self::spawn(&["folder".as_ref(), folder.as_os_str()])
    }

    /// Kills this process group.
    pub(crate) fn over_process_group(leader: u32) -> anyhow::Result<Self> {
        Self::spawn(&["process".as_ref(), leader.to_string().as_ref()])
    }

    /// Requests every process of this session to end.
    pub(crate) fn over_session(leader: u32) -> anyhow::Result<Self> {
        Self::spawn(&["session".as_ref(), leader.to_string().as_ref()])
    }

    fn spawn(arguments: &[&OsStr]) -> anyhow::Result<Self> {
        // A separate process group: a signal that kills ours must not kill the watchdog.
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "posthaste-testkit-watchdog"])
            .args(arguments)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the watchdog")?;
        Ok(Self(shell))
    }

    /// Ends the watchdog without letting it act.
    pub(crate) fn dismiss(mut self) {
        let _ = self.0.kill();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
