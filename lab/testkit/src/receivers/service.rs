//! A process with a separate folder and port, which can be stopped, killed and restarted in its
//! place.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::account::Account;
use crate::child::Child;
use crate::folder::Folder;
use crate::watchdog::Watchdog;

const START_BOUND: Duration = Duration::from_secs(120);
const STOP_BOUND: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// A server or a worker, which ends with its owner or with the test process.
///
/// Starting and stopping block the calling thread.
pub struct Service {
    name: &'static str,
    /// Starts the process; `None` if the run's launcher owns it.
    command: Option<Box<dyn Fn() -> Command + Send + Sync>>,
    ready: &'static str,
    process: Mutex<Option<Child>>,
    // Dropped last, when no process uses it any more.
    folder: Folder,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.path();
        f.debug_struct(self.name).field("folder", &folder).finish()
    }
}

impl Service {
    /// Creates a folder that this account can use, for a service.
    pub(super) fn folder(account: Account) -> anyhow::Result<Folder> {
        Folder::create(account, Watchdog::over_folder)
    }

    /// Starts a service with this command, and waits until it has written this text.
    pub(super) fn start(
        name: &'static str,
        folder: Folder,
        ready: &'static str,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let service = Self {
            name,
            command: Some(Box::new(command)),
            ready,
            process: Mutex::new(None),
            folder,
        };
        service.restart()?;
        Ok(service)
    }

    /// A service that the run's launcher owns, with this folder; this process only uses it.
    pub(super) fn of_the_run(name: &'static str, folder: PathBuf) -> Self {
        Self {
            name,
            command: None,
            ready: "",
            process: Mutex::new(None),
            folder: Folder::of_another(folder),
        }
    }

    /// Its private folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The process ID, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Child::pid)
    }

    /// Its output since its last start.
    pub fn output_lines(&self) -> Vec<String> {
        self.process()
            .as_ref()
            .map(output_lines)
            .unwrap_or_default()
    }

    /// Restarts it in its place; if it runs, it is stopped in order first.
    pub fn restart(&self) -> anyhow::Result<()> {
        if self.pid().is_some() {
            self.stop()?;
        }
        let mut process = self.process();
        let command = self.command.as_ref();
        let command = command.with_context(|| format!("all tests share this {}", self.name))?;
        let child = Child::spawn(&mut command())?;
        self.wait_until_ready(&child)?;
        *process = Some(child);
        Ok(())
    }

    /// Stops it in order, with SIGTERM.
    pub fn stop(&self) -> anyhow::Result<()> {
        let mut child = self.take()?;
        child.terminate()?;
        let deadline = Instant::now() + STOP_BOUND;
        while crate::is_alive(child.pid()) {
            ensure!(
                Instant::now() < deadline,
                "{} did not end: {:?}",
                self.name,
                output_lines(&child)
            );
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Kills it with SIGKILL, as the kernel does when memory runs out.
    pub fn kill9(&self) -> anyhow::Result<()> {
        self.take()?.kill()?;
        Ok(())
    }

    /// Pauses it with SIGSTOP: connections stay open, and no request is answered.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.running()?.as_mut().map_or(Ok(()), Child::pause)
    }

    /// Resumes it with SIGCONT.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.running()?.as_mut().map_or(Ok(()), Child::resume)
    }

    fn wait_until_ready(&self, child: &Child) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_BOUND;
        loop {
            let lines = output_lines(child);
            if lines.iter().any(|line| line.contains(self.ready)) {
                return Ok(());
            }
            if Instant::now() > deadline || !crate::is_alive(child.pid()) {
                let last = lines.len().saturating_sub(30);
                bail!("{} did not start: {}", self.name, lines[last..].join("\n"));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn take(&self) -> anyhow::Result<Child> {
        let child = self.process().take();
        child.with_context(|| format!("{} does not run", self.name))
    }

    fn running(&self) -> anyhow::Result<MutexGuard<'_, Option<Child>>> {
        let process = self.process();
        ensure!(process.is_some(), "{} does not run", self.name);
        Ok(process)
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn output_lines(child: &Child) -> Vec<String> {
    let mut lines = child.stdout();
    lines.extend(child.stderr());
    lines
}

/// Retries: another process may take a port between the check and the start.
pub(super) fn retry_on_free_ports<T>(
    mut start: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut last = None;
    for _ in 0..3 {
        match start() {
            Err(error) if is_port_taken(&error) => last = Some(error),
            outcome => return outcome,
        }
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("no port was tried")))
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    let said = format!("{error:#}").to_lowercase();
    ["already in use", "eaddrinuse"]
        .iter()
        .any(|words| said.contains(words))
}
