//! The private Postgres, for a first run on a machine without a database.
//!
//! It listens on the loopback interface only, on a free port that is recorded in its folder,
//! requires a random password stored in a file of mode 0600, and is fully durable (`fsync`,
//! `synchronous_commit`). Every process that uses it holds a shared lock on the file `users`; the
//! last one to exit stops the server. A killed process cannot do so: the next process adopts the
//! running server.

mod binaries;
mod cluster;
mod home;
mod postmaster;
mod server;

use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::Child;

use crate::connect::Address;
use binaries::Binaries;
pub(crate) use home::FOLDER_NAME;
use home::Home;
use postmaster::{Postmaster, PostmasterState};

const DATABASE_USER: &str = "posthaste";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Whether a command may make the private Postgres if it does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfAbsent {
    Make,
    Refuse,
}

/// The running private Postgres, with this process among its users.
pub(crate) struct LocalPostgres {
    home: Home,
    server: Postmaster,
    /// The server process, if this process started it.
    child: Option<Child>,
    users: File,
    address: Address,
    url: String,
    adopted: bool,
}

impl LocalPostgres {
    /// Starts the Postgres of the current directory, or connects to the running one.
    pub(crate) async fn open(pg_bin: Option<&Path>, absent: IfAbsent) -> anyhow::Result<Self> {
        let home = Home::in_current_directory()?;
        if absent == IfAbsent::Refuse && !home.exists() {
            bail!(
                "no database: DATABASE_URL is not set, and no private Postgres was created here. \
                 Set it, or run 'posthaste up' in this folder first."
            );
        }
        home.make()?;
        let turn = StartStopLock::acquire(&home).await?;
        let opened = Self::open_locked(home, pg_bin).await;
        drop(turn);
        opened
    }

    async fn open_locked(home: Home, pg_bin: Option<&Path>) -> anyhow::Result<Self> {
        // Taken before the check: from here on no other process is the last user.
        let users = lock_file(&home, "users")?;
        users
            .lock_shared()
            .context("cannot lock the file 'users' of the private Postgres")?;
        home.write(".gitignore", b"*\n")
            .map_err(|error| home.not_writable_error(&error))?;
        if !home.exists() {
            cluster::make_data_directory(&home, &Binaries::find(pg_bin, None)?)?;
        }
        let password = home.read("password").with_context(|| {
            format!(
                "{} has lost its password file. Remove that folder to start over",
                home.folder.display()
            )
        })?;
        let running = server::find_running(&home, &password).await?;
        let adopted = running.is_some();
        let (server, child) = match running {
            Some(server) => (server, None),
            None => {
                let binaries = Binaries::find(pg_bin, home.made_by())?;
                let (server, child) = server::start(&home, &binaries, &password).await?;
                (server, Some(child))
            }
        };
        cluster::make_database(server.port, &password).await?;
        let address = Address::private_server(server.port, DATABASE_USER, &password)?;
        let url = format!(
            "postgres://{DATABASE_USER}:{password}@127.0.0.1:{}/{DATABASE_USER}",
            server.port
        );
        home.write("url", format!("{url}\n").as_bytes())?;
        home.write("port", format!("{}\n", server.port).as_bytes())?;
        Ok(Self {
            home,
            server,
            child,
            users,
            address,
            url,
            adopted,
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The URL with its password, for other programs.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The folder of all its files; it holds no files of the user.
    pub(crate) fn folder(&self) -> &Path {
        &self.home.folder
    }

    /// Whether the server was running already.
    pub(crate) fn was_running(&self) -> bool {
        self.adopted
    }

    /// Returns what a process needs to stop the server without waiting, when it exits at once.
    pub(crate) fn quick_stopper(&self) -> anyhow::Result<QuickStopper> {
        Ok(QuickStopper {
            pid: self.server.pid,
            users: self.users.try_clone()?,
        })
    }

    /// Resolves to an error once the server has ended and this process did not stop it.
    pub(crate) async fn wait_until_gone(&self) -> anyhow::Error {
        let data = self.home.data();
        // Two checks, because the file may be in the middle of a write.
        let mut missed = 0;
        while missed < 2 {
            let runs =
                postmaster::read_pid_file(&data) == PostmasterState::Running(self.server.clone());
            missed = if runs { 0 } else { missed + 1 };
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
        let log = self.home.log();
        anyhow::anyhow!(
            "the private Postgres exited; see {} for the reason. Run the same command again to \
             start it.",
            log.display()
        )
    }

    /// Releases the server, and stops it unless another process uses it.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        let _turn = StartStopLock::acquire(&self.home).await?;
        if !is_last_user(&self.users) {
            return Ok(());
        }
        postmaster::signal_shutdown(self.server.pid, true);
        if !self.ended_within(STOP_TIMEOUT).await {
            postmaster::signal_shutdown(self.server.pid, false);
            anyhow::ensure!(
                self.ended_within(STOP_TIMEOUT).await,
                "the private Postgres (process {}) does not stop. See {}.",
                self.server.pid,
                self.home.log().display()
            );
        }
        Ok(())
    }

    async fn ended_within(&mut self, limit: Duration) -> bool {
        let data = self.home.data();
        let gone = async {
            if let Some(child) = &mut self.child {
                let _ = child.wait().await;
            }
            while postmaster::read_pid_file(&data) == PostmasterState::Running(self.server.clone())
            {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(limit, gone).await.is_ok()
    }
}

/// The data for stopping the server without waiting for its end.
pub(crate) struct QuickStopper {
    pid: i32,
    users: File,
}

impl QuickStopper {
    pub(crate) fn run(&self) {
        if is_last_user(&self.users) {
            postmaster::signal_shutdown(self.pid, true);
        }
    }
}

/// The lock under which one process at a time starts, adopts or stops the server.
struct StartStopLock(#[expect(dead_code, reason = "held for its lock")] File);

impl StartStopLock {
    async fn acquire(home: &Home) -> anyhow::Result<Self> {
        let file = lock_file(home, "lock")?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(TryLockError::WouldBlock) => bail!(
                    "another posthaste has been starting or stopping the Postgres in {} for two \
                     minutes. Stop it, then try again.",
                    home.folder.display()
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).context("cannot lock the private Postgres");
                }
            }
        }
    }
}

fn lock_file(home: &Home, name: &str) -> anyhow::Result<File> {
    let path = home.folder.join(name);
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| home.not_writable_error(&error))
}

/// Whether this process is the last user: its shared lock on `users` becomes exclusive only if no
/// other process holds one.
fn is_last_user(users: &File) -> bool {
    users.try_lock().is_ok()
}
