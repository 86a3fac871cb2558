//! A run of the tests: servers for all of them, and the end of everything that they started.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::account::Account;
use crate::child;
use crate::folder::Folder;
use crate::shared::{SERVERS, serve};
use crate::watchdog::Watchdog;

/// Starts servers for its child processes, as they request them.
#[derive(Debug)]
pub struct TestRun(Folder);

/// A watchdog that acts when it is dropped.
#[derive(Debug)]
pub struct Watched(Option<Watchdog>);

impl TestRun {
    /// Serves from now on, as long as this process lives.
    pub fn start() -> anyhow::Result<Self> {
        let folder = Folder::create(Account::Ourselves, Watchdog::over_folder)?;
        let path = folder.path().to_owned();
        std::thread::spawn(move || serve(&path));
        Ok(Self(folder))
    }

    /// The folder for requests of the run's servers.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Creates a command that finds the servers of this run. It leads a separate session, by which
    /// [`watch`](Self::watch) finds all its processes.
    pub fn command(
        &self,
        program: &OsStr,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Command {
        let mut command = child::command("setsid");
        command.arg(program).args(arguments);
        command.env(SERVERS, self.folder());
        command
    }

    /// Requests the whole session of this process to end when the returned value is dropped, or
    /// when the current process ends in any way.
    pub fn watch(&self, leader: u32) -> anyhow::Result<Watched> {
        Ok(Watched(Some(Watchdog::over_session(leader)?)))
    }

    /// Sends this process the signal that we received: SIGTERM or SIGINT.
    pub fn pass_on(&self, process: Option<u32>, terminate: bool) {
        let signal = if terminate { Signal::TERM } else { Signal::INT };
        let process = process.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // A process that has just ended by itself is fine.
        let _ = process.map(|process| kill_process(process, signal));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// Allows this process and its children to open as many files as the machine allows: many systems
/// begin at 1,024, and some tests hold more connections.
pub fn more_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
