//! Private Postgres servers on loopback.
//!
//! A server has a separate folder. Server and folder are removed when the [`PgServer`] is dropped
//! or when the test process ends, also by SIGKILL, and also for servers in statics: a watchdog
//! process holds the other end of a pipe and cleans up when it closes.
//!
//! Starting and stopping block the calling thread. A test whose other tasks must continue needs a
//! runtime with several threads.

mod clock;
mod process;
mod start;
mod version;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;

use crate::account::Account;
use crate::child;
use crate::folder::Folder;
use crate::pooler::Pooler;
use clock::Clock;
use process::{signal, wait};
pub use version::PgVersion;

const START_BOUND: Duration = Duration::from_secs(120);
const STOP_BOUND: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(5);

/// A private server.
#[derive(Debug)]
pub struct PgServer {
    version: PgVersion,
    bin: PathBuf,
    account: Account,
    port: u16,
    settings: Vec<(String, String)>,
    state: Mutex<State>,
    pooler: OnceLock<Result<Pooler, String>>,
    clock: Option<Clock>,
    /// Whether other tests use it too.
    is_shared: bool,
    /// Whether a test has created a database from a template.
    was_used: AtomicBool,
    // Dropped last, when nothing else needs the folder.
    folder: Folder,
}

#[derive(Debug)]
enum State {
    Running(Child),
    /// The run's launcher owns the server, which has this process ID.
    Elsewhere(u32),
    Stopped,
    /// Its shared memory still exists, and only a new start removes it.
    Killed,
}

impl PgServer {
    /// The version of the server.
    pub fn version(&self) -> PgVersion {
        self.version
    }

    /// Whether the first database of a private server is requested. It may be the only one, so a
    /// template does not pay.
    pub(crate) fn takes_first_database(&self) -> bool {
        !self.is_shared && !self.was_used.swap(true, Ordering::SeqCst)
    }

    /// Sets the server's separate clock this many seconds ahead of the machine's, or back if
    /// negative.
    pub fn turn_clock(&self, seconds: i64) -> anyhow::Result<()> {
        self.clock
            .as_ref()
            .context("this server has no clock of its own")?
            .set_offset(seconds)
    }

    /// The address where the server listens, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of a database on this server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database through PgBouncer in transaction mode. The first call starts
    /// PgBouncer.
    pub fn pooled_url(&self, database: &str) -> anyhow::Result<String> {
        let start = || Pooler::start(self.account, self.port).map_err(|error| format!("{error:#}"));
        match self.pooler.get_or_init(start) {
            Ok(pooler) => Ok(pooler.url(database)),
            Err(error) => bail!("{error}"),
        }
    }

    /// A client tool of this server's version, such as `pg_dump`, which connects to this server by
    /// default. If that version has no tools, it is one of the newest version.
    pub fn tool(&self, name: &str) -> Command {
        let program = self.version.tool(&self.bin, name);
        let mut command = Command::new(program.unwrap_or_else(|_| self.bin.join(name)));
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", "postgres")
            .stdin(Stdio::null());
        command
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.folder.data_folder()
    }

    /// The server's log file.
    pub fn log_file(&self) -> PathBuf {
        self.folder.log_file()
    }

    /// The server's log since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.log_file()).unwrap_or_default()
    }

    /// The process ID of the postmaster, while the server runs.
    pub fn pid(&self) -> Option<u32> {
        match &*self.state() {
            State::Running(process) => Some(process.id()),
            State::Elsewhere(pid) => Some(*pid),
            State::Stopped | State::Killed => None,
        }
    }

    /// Stops without a checkpoint, like a crash of the server: what was not flushed is lost.
    pub fn stop_immediate(&self) -> anyhow::Result<()> {
        self.stop(Signal::QUIT)
    }

    /// Terminates all sessions and stops in order.
    pub fn stop_fast(&self) -> anyhow::Result<()> {
        self.stop(Signal::INT)
    }

    /// Kills every process of the server at once with SIGKILL, like a crash of the machine.
    pub fn kill9(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        let State::Running(process) = &mut *state else {
            bail!("the server does not run")
        };
        // Paused first: otherwise it could start processes while they are listed.
        signal(process.id(), Signal::STOP)?;
        for backend in child::children_of(process.id())? {
            // A process that has just ended by itself is fine.
            let _ = signal(backend, Signal::KILL);
        }
        process.kill()?;
        process.wait()?;
        *state = State::Killed;
        Ok(())
    }

    /// Starts again with the same port and data; a running server is stopped fast first.
    pub fn restart(&self) -> anyhow::Result<()> {
        if self.pid().is_some() {
            self.stop_fast()?;
        }
        let deadline = Instant::now() + START_BOUND;
        loop {
            match self.launch() {
                // Backends of a killed server, or another process that uses the port briefly, need
                // time to end.
                Err(_)
                    if Instant::now() < deadline
                        && (self.port_is_taken() || self.memory_is_taken()) =>
                {
                    std::thread::sleep(READY_POLL * 20);
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts the postmaster as our child process and waits until it accepts connections.
    fn launch(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        let log = fs::File::create(self.folder.log_file())?;
        let mut command = self.account.command(self.bin.join("postgres"));
        command
            .arg("-D")
            .arg(self.folder.data_folder())
            .arg("-p")
            .arg(self.port.to_string());
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        if let Some(clock) = &self.clock {
            clock.apply_to(&mut command);
        }
        let mut process = command
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting postgres")?;
        match self.wait_until_ready(&mut process) {
            Ok(()) => {
                *state = State::Running(process);
                Ok(())
            }
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }

    fn wait_until_ready(&self, process: &mut Child) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_BOUND;
        loop {
            if let Some(status) = process.try_wait()? {
                bail!(
                    "postgres ended while it started ({status}):\n{}",
                    self.log()
                );
            }
            // The file of a killed server also contains "ready", but another process ID.
            let file = fs::read_to_string(self.folder.pid_file()).unwrap_or_default();
            let mut lines = file.lines();
            let ours = lines.next().and_then(|line| line.parse().ok()) == Some(process.id());
            if ours && lines.nth(6).is_some_and(|status| status.trim() == "ready") {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "postgres was not ready within {START_BOUND:?}:\n{}",
                self.log()
            );
            std::thread::sleep(READY_POLL);
        }
    }

    fn stop(&self, how: Signal) -> anyhow::Result<()> {
        let mut state = self.state();
        let State::Running(process) = &mut *state else {
            bail!("the server does not run")
        };
        signal(process.id(), how)?;
        wait(process, STOP_BOUND).with_context(|| format!("stopping postgres:\n{}", self.log()))?;
        *state = State::Stopped;
        Ok(())
    }

    fn port_is_taken(&self) -> bool {
        self.log().contains("could not bind")
    }

    fn memory_is_taken(&self) -> bool {
        self.log().contains("pre-existing shared memory block")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        if matches!(*self.state(), State::Killed) {
            let _ = self.restart();
        }
        // The watchdog stops the server, so that every test exercises its cleanup.
        self.folder.remove();
        if let State::Running(process) = &mut *self.state() {
            let _ = process.wait();
        }
    }
}
