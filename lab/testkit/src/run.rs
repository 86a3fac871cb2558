//! One run of the tests: servers for all of them, and an end for everything that they started.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::account::Account;
use crate::child;
use crate::folder::Folder;
use crate::shared::{SERVERS, serve};
use crate::watchdog::Watchdog;

/// Starts servers for the processes that it starts, as they ask for them.
#[derive(Debug)]
pub struct TestRun(Folder);

/// Something that ends with its owner.
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

    /// Where the run's servers are asked for.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A command that finds the servers of this run. It leads a session of its own, by which
    /// [`watch`](Self::watch) finds all that it started.
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

    /// Asks the whole session of this process to end when the answer is dropped, or when this
    /// process ends in whatever way.
    pub fn watch(&self, leader: u32) -> anyhow::Result<Watched> {
        Ok(Watched(Some(Watchdog::over_session(leader)?)))
    }

    /// Asks this process to end, as we were asked.
    pub fn pass_on(&self, process: Option<u32>, terminate: bool) {
        let signal = if terminate { Signal::TERM } else { Signal::INT };
        let process = process.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // One that has ended just now is as good.
        let _ = process.map(|process| kill_process(process, signal));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// Lets this process, and what it starts, open as many files as the machine allows: many systems
/// begin at 1,024, and some tests hold more connections.
pub fn more_descriptors() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
