//! Starts the server process, or finds a running one and checks its identity.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::Child;
use tokio_postgres::error::SqlState;

use super::POLL_INTERVAL;
use super::binaries::Binaries;
use super::home::Home;
use super::postmaster::{self, Postmaster, PostmasterState};
use crate::connect::Address;

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of crash recovery, which lets connections fail with CANNOT_CONNECT_NOW.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(900);
const MAX_LOG_BYTES: u64 = 16 << 20;

/// Returns the running server of this data directory once it accepts our password. `None` if there
/// is no server, or only a stale file of a kill or a reboot, which is removed.
pub(crate) async fn find_running(
    home: &Home,
    password: &str,
) -> anyhow::Result<Option<Postmaster>> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut seen_starting = false;
    loop {
        match postmaster::read_pid_file(&home.data()) {
            PostmasterState::Absent => return Ok(None),
            PostmasterState::Stale => {
                // Postgres would take the process that has this id now for a server and refuse to
                // start.
                fs::remove_file(home.data().join("postmaster.pid"))?;
                return Ok(None);
            }
            PostmasterState::Running(server) => {
                match find_port_owner(home, server.port, password).await {
                    PortOwner::Ours => return Ok(Some(server)),
                    PortOwner::OursStarting => seen_starting = true,
                    PortOwner::Other => bail!(
                        "another program uses port {} of the private Postgres of {}. Stop it, or \
                     remove that folder to start over.",
                        server.port,
                        home.folder.display()
                    ),
                    PortOwner::Nobody => {}
                }
            }
            PostmasterState::Starting => {}
        }
        let limit = if seen_starting {
            deadline + RECOVERY_TIMEOUT
        } else {
            deadline
        };
        anyhow::ensure!(
            Instant::now() < limit,
            "the private Postgres is running but does not answer. See {}.",
            home.log().display()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Starts a server on this data directory, where none runs.
pub(crate) async fn start(
    home: &Home,
    binaries: &Binaries,
    password: &str,
) -> anyhow::Result<(Postmaster, Child)> {
    home.check_runs(binaries)?;
    let mut port = home
        .read("port")
        .and_then(|text| text.parse().ok())
        .filter(|port| is_free(*port));
    // Another process may take the port between the check and the server's bind.
    for _ in 0..5 {
        let chosen = match port.take() {
            Some(port) => port,
            None => free_port()?,
        };
        let log = open_log(home)?;
        let said_before = log.metadata().map_or(0, |file| file.len());
        let mut child = spawn(home, binaries, chosen, log)?;
        match wait_for_answer(home, &mut child, chosen, password).await? {
            StartResult::Answers(server) => return Ok((server, child)),
            StartResult::Ended => {}
        }
        let complaint = last_fatal_line(&home.log(), said_before);
        if !complaint.contains("could not create any TCP/IP sockets") {
            bail!(
                "the private Postgres did not start: {complaint}. See {}.",
                home.log().display()
            );
        }
    }
    bail!(
        "no free port on 127.0.0.1 for the private Postgres. Close some programs, \
         or set DATABASE_URL."
    )
}

fn open_log(home: &Home) -> anyhow::Result<File> {
    let path = home.log();
    if fs::metadata(&path).is_ok_and(|file| file.len() > MAX_LOG_BYTES) {
        fs::remove_file(&path)?;
    }
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn spawn(home: &Home, binaries: &Binaries, port: u16, log: File) -> anyhow::Result<Child> {
    let mut command = home.command(&binaries.program("postgres"));
    command.arg("-D").arg(home.data());
    let port = format!("port={port}");
    let settings = [
        "listen_addresses=127.0.0.1",
        port.as_str(),
        // Without a socket no path can be too long, and the password cannot be bypassed.
        "unix_socket_directories=",
        "fsync=on",
        "synchronous_commit=on",
        "wal_level=logical",
        // A slot without a reader must not fill the disk.
        "max_slot_wal_keep_size=10GB",
        "jit=off",
        "max_connections=100",
        "logging_collector=off",
        "log_destination=stderr",
    ];
    for setting in settings {
        command.args(["-c", setting]);
    }
    command
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log));
    tokio::process::Command::from(command)
        .spawn()
        .with_context(|| format!("cannot start {}", binaries.program("postgres").display()))
}

enum StartResult {
    Answers(Postmaster),
    Ended,
}

/// Waits until a started server accepts connections or has ended.
async fn wait_for_answer(
    home: &Home,
    child: &mut Child,
    port: u16,
    password: &str,
) -> anyhow::Result<StartResult> {
    let pid = child
        .id()
        .and_then(|pid| pid.try_into().ok())
        .with_context(|| format!("Postgres exited at once. See {}.", home.log().display()))?;
    let mut deadline = Instant::now() + START_TIMEOUT;
    let recovered_by = Instant::now() + RECOVERY_TIMEOUT;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(StartResult::Ended);
        }
        match find_port_owner(home, port, password).await {
            PortOwner::Ours => return Ok(StartResult::Answers(Postmaster { pid, port })),
            PortOwner::OursStarting => deadline = recovered_by,
            // Until the server has bound the port, another process may answer there.
            PortOwner::Nobody | PortOwner::Other => {}
        }
        if Instant::now() > deadline {
            postmaster::signal_shutdown(pid, false);
            bail!(
                "the private Postgres did not start in time. See {}.",
                home.log().display()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

enum PortOwner {
    Ours,
    OursStarting,
    Other,
    Nobody,
}

/// Connects to find the owner of the port. SCRAM reveals no password to another server, and only
/// our data directory has this password.
async fn find_port_owner(home: &Home, port: u16, password: &str) -> PortOwner {
    let Ok(address) = Address::private_server(port, "postgres", password) else {
        return PortOwner::Nobody;
    };
    let client = match address.try_connect().await {
        Ok(client) => client,
        Err(code) => {
            return match code {
                Some(code) if code == SqlState::CANNOT_CONNECT_NOW => PortOwner::OursStarting,
                Some(code) if code == SqlState::TOO_MANY_CONNECTIONS => PortOwner::OursStarting,
                Some(_) => PortOwner::Other,
                None => PortOwner::Nobody,
            };
        }
    };
    let row = client.query_one(include_str!("identity.sql"), &[]).await;
    match row.and_then(|row| row.try_get::<_, String>(0)) {
        Ok(folder) if fs::canonicalize(&folder).ok() == fs::canonicalize(home.data()).ok() => {
            PortOwner::Ours
        }
        Ok(_) => PortOwner::Other,
        Err(_) => PortOwner::Nobody,
    }
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no loopback address")?;
    Ok(listener.local_addr()?.port())
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Returns the last fatal line of the server's log after `start`.
fn last_fatal_line(log: &Path, start: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(start))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let fatal = text
        .lines()
        .rev()
        .find_map(|line| line.split_once("FATAL: "));
    fatal.map_or_else(
        || "it gives no reason".to_owned(),
        |(_, reason)| reason.trim().to_owned(),
    )
}
