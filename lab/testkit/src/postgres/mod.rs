//! Private Postgres servers on loopback.
//!
//! A server lives in a folder of its own and is gone, folder and all, when its [`PgServer`] is
//! dropped or when the test process ends: also by SIGKILL, and also for servers in statics. A
//! watchdog process holds the other end of a pipe and cleans up when it closes.
//!
//! Starting and stopping block the calling thread. In a test whose other tasks must run on
//! meanwhile, use a runtime with several threads.

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
const PAUSE: Duration = Duration::from_millis(5);

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
    /// Other tests use it too.
    is_shared: bool,
    /// It has had a database that a test asked for by a template.
    was_used: AtomicBool,
    // Dropped last, when nothing else of ours needs the folder any more.
    folder: Folder,
}

#[derive(Debug)]
enum State {
    Running(Child),
    /// The run's launcher keeps it, under this number.
    Elsewhere(u32),
    Stopped,
    /// Its shared memory is still there and only a new start removes it.
    Killed,
}

impl PgServer {
    /// The version that runs here.
    pub fn version(&self) -> PgVersion {
        self.version
    }

    /// Takes the place of the first database here, which may be the only one: not worth a template.
    pub(crate) fn takes_first_database(&self) -> bool {
        !self.is_shared && !self.was_used.swap(true, Ordering::SeqCst)
    }

    /// Sets the server's own clock this many seconds ahead of the machine's, or behind, from now
    /// on.
    pub fn turn_clock(&self, seconds: i64) -> anyhow::Result<()> {
        self.clock
            .as_ref()
            .context("this server has no clock of its own")?
            .turn(seconds)
    }

    /// Where the server listens, also while it is stopped.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of a database on this server.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database on this server behind PgBouncer in transaction mode, which the first
    /// who asks starts.
    pub fn pooled_url(&self, database: &str) -> anyhow::Result<String> {
        let start = || Pooler::start(self.account, self.port).map_err(|error| format!("{error:#}"));
        match self.pooler.get_or_init(start) {
            Ok(pooler) => Ok(pooler.url(database)),
            Err(error) => bail!("{error}"),
        }
    }

    /// A client tool of this server's version, such as `pg_dump`, that connects to this server
    /// unless told otherwise. Where that version came without tools it is one of the newest
    /// version.
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
        self.folder.data()
    }

    /// Where the server logs.
    pub fn log_file(&self) -> PathBuf {
        self.folder.log()
    }

    /// What the server has logged since it was last started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.log()).unwrap_or_default()
    }

    /// The number of the postmaster process, while the server runs.
    pub fn pid(&self) -> Option<u32> {
        match &*self.state() {
            State::Running(process) => Some(process.id()),
            State::Elsewhere(pid) => Some(*pid),
            State::Stopped | State::Killed => None,
        }
    }

    /// Stops without a checkpoint, as a crash of the server would: what was not flushed is lost.
    pub fn stop_immediate(&self) -> anyhow::Result<()> {
        self.stop(Signal::QUIT)
    }

    /// Ends all sessions and stops in order.
    pub fn stop_fast(&self) -> anyhow::Result<()> {
        self.stop(Signal::INT)
    }

    /// Kills every process of the server at once by SIGKILL, as a crash of the machine would.
    pub fn kill9(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        let State::Running(process) = &mut *state else {
            bail!("the server does not run")
        };
        // Held still first, or it would start new processes while its processes are counted.
        signal(process.id(), Signal::STOP)?;
        for backend in child::children_of(process.id())? {
            // One that has just ended by itself is as good.
            let _ = signal(backend, Signal::KILL);
        }
        process.kill()?;
        process.wait()?;
        *state = State::Killed;
        Ok(())
    }

    /// Starts again with the same port and data, after stopping fast if the server still runs.
    pub fn restart(&self) -> anyhow::Result<()> {
        if self.pid().is_some() {
            self.stop_fast()?;
        }
        let deadline = Instant::now() + START_BOUND;
        loop {
            match self.launch() {
                // Backends of a killed server, or somebody passing by on the port, need a moment to
                // go.
                Err(_)
                    if Instant::now() < deadline
                        && (self.port_is_taken() || self.memory_is_taken()) =>
                {
                    std::thread::sleep(PAUSE * 20);
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts the postmaster as our own child and waits until it accepts connections.
    fn launch(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        let log = fs::File::create(self.folder.log())?;
        let mut command = self.account.command(self.bin.join("postgres"));
        command
            .arg("-D")
            .arg(self.folder.data())
            .arg("-p")
            .arg(self.port.to_string());
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        if let Some(clock) = &self.clock {
            clock.rule(&mut command);
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
            // A file left by a killed server says "ready" too, but under another number.
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
            std::thread::sleep(PAUSE);
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
        // The watchdog stops the server, so that its way of cleaning up is walked by every test.
        self.folder.remove();
        if let State::Running(process) = &mut *self.state() {
            let _ = process.wait();
        }
    }
}
