//! A small process that cleans up behind a test process, however that process ends.
//!
//! Statics are never dropped and SIGKILL runs no code, so the cleaning is done by a shell that
//! waits for the end of a pipe which only the test process holds. `prctl(PR_SET_PDEATHSIG)` is no
//! way to do this: it fires when the *thread* that started the child ends, and every test has a
//! thread of its own.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

const SCRIPT: &str = include_str!("watchdog.sh");

/// Does its work once it is dropped, or once the process that holds it has ended.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Will stop the server in this folder at once and remove the folder.
    pub(crate) fn over_server(folder: &Path) -> anyhow::Result<Self> {
        Self::spawn(&["server".as_ref(), folder.as_os_str()])
    }

    /// Will remove this folder, whose users have watchdogs of their own.
    pub(crate) fn over_folder(folder: &Path) -> anyhow::Result<Self> {
        Self::spawn(&["folder".as_ref(), folder.as_os_str()])
    }

    /// Will kill this process group.
    pub(crate) fn over_process_group(leader: u32) -> anyhow::Result<Self> {
        Self::spawn(&["process".as_ref(), leader.to_string().as_ref()])
    }

    /// Will ask every process of this session to end.
    pub(crate) fn over_session(leader: u32) -> anyhow::Result<Self> {
        Self::spawn(&["session".as_ref(), leader.to_string().as_ref()])
    }

    fn spawn(arguments: &[&OsStr]) -> anyhow::Result<Self> {
        // A process group of its own, or whatever kills ours would kill the watchdog with it.
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

    /// Sends the watchdog home without letting it act.
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
