//! Starts servers, each in a separate folder: shared, private, with a clock, as a replica.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::clock::Clock;
use super::process::{run, signal};
use super::{PgServer, PgVersion, State};
use crate::account::Account;
use crate::child;
use crate::folder::Folder;
use crate::shared::{data_folder_of_run, read_port, server_of_run};
use crate::watchdog::Watchdog;
use crate::{ports, ran};

/// Settings of every server; the settings of a test come later and override these.
///
/// `jit` keeps its default, which is on: the guarantees must also hold with JIT, if the programs of
/// a version have it.
const SETTINGS: [(&str, &str); 7] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("fsync", "on"),
    ("shared_buffers", "128MB"),
    ("max_connections", "300"),
    ("max_prepared_transactions", "64"),
    ("autovacuum", "on"),
];

/// The place of a server, and its clock.
#[derive(Default)]
struct ServerPlace<'a> {
    /// The parent folder; the usual places if `None`.
    parent: Option<&'a Path>,
    /// Whether it has a separate clock instead of the machine's.
    has_clock: bool,
}

impl ServerPlace<'_> {
    fn with_clock(has_clock: bool) -> Self {
        Self {
            has_clock,
            ..Self::default()
        }
    }
}

impl PgServer {
    /// Returns the server that all tests of the run share, or else all of this process. The first
    /// call starts it.
    pub fn shared(version: PgVersion) -> anyhow::Result<&'static Self> {
        static SHARED: [OnceLock<Result<PgServer, String>>; 4] = [const { OnceLock::new() }; 4];
        let slot = PgVersion::PROMISED.iter().position(|one| *one == version);
        let slot = &SHARED[slot.context("no such version")?];
        let version = version.played_by()?;
        let start = || {
            let attach = |found: &Value| Self::attach(version, found);
            server_of_run(version.name(), attach, || Self::start_itself(version))
        };
        slot.get_or_init(start)
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Starts a shared server of exactly this version.
    pub(crate) fn start_itself(version: PgVersion) -> anyhow::Result<Self> {
        let start = Self::start_in(version, &[], ServerPlace::default(), |server| {
            server.initdb(&[])
        });
        let mut server = start?;
        server.is_shared = true;
        Ok(server)
    }

    /// The description by which other processes find this server.
    pub(crate) fn description(&self) -> Value {
        json!({"port": self.port, "pid": self.pid(), "folder": self.folder.path(), "bin": self.bin})
    }

    /// Connects to the described server.
    fn attach(version: PgVersion, found: &Value) -> anyhow::Result<Self> {
        let folder = found["folder"].as_str().context("no folder")?;
        let pid = found["pid"].as_u64().context("no number")?;
        let folder = Folder::of_another(folder.into());
        // The folder is determined once a run: each search starts the server to read its version.
        let bin = found["bin"].as_str().context("no programs")?;
        let mut server = Self::stopped(version, bin.into(), &[], folder)?;
        server.port = read_port(found, "port")?;
        server.is_shared = true;
        server.state = Mutex::new(State::Elsewhere(pid.try_into()?));
        Ok(server)
    }

    /// Prepares a server that does not run yet.
    fn stopped(
        version: PgVersion,
        bin: PathBuf,
        settings: &[(&str, &str)],
        folder: Folder,
    ) -> anyhow::Result<Self> {
        let settings = SETTINGS.iter().chain(settings);
        Ok(Self {
            version,
            bin,
            account: Account::for_servers()?,
            port: 0,
            settings: settings
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            state: Mutex::new(State::Stopped),
            pooler: OnceLock::new(),
            clock: None,
            is_shared: false,
            was_used: AtomicBool::new(false),
            folder,
        })
    }

    /// Starts a private server for a test that stops or kills it, or that needs other settings.
    pub fn start(version: PgVersion, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let version = version.played_by()?;
        Self::start_in(version, settings, ServerPlace::default(), |server| {
            server.initdb(&[])
        })
    }

    /// As [`start`](Self::start), in a folder below `parent`, which chooses the disk to measure.
    pub fn start_below(
        parent: &Path,
        version: PgVersion,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let place = ServerPlace {
            parent: Some(parent),
            has_clock: false,
        };
        Self::start_in(version, settings, place, |server| server.initdb(&[]))
    }

    /// As [`start`](Self::start), with a separate clock, which [`PgServer::turn_clock`] sets. Its
    /// replicas have separate clocks too.
    pub fn start_with_clock(version: PgVersion, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let version = version.played_by()?;
        Self::start_in(version, settings, ServerPlace::with_clock(true), |server| {
            server.initdb(&[])
        })
    }

    /// Starts a streaming replica of this server, asynchronous at first.
    pub fn start_replica(&self, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let place = ServerPlace::with_clock(self.clock.is_some());
        Self::start_in(self.version, settings, place, |replica| {
            let program = self.version.tool(&self.bin, "pg_basebackup")?;
            let mut copy = replica.account.command(program);
            copy.args([
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
                "--pgdata",
            ])
            .arg(replica.folder.data_folder())
            .arg("--dbname")
            .arg(self.url("postgres"));
            run(&mut copy)?;
            // An older server may be unable to read the settings that a newer tool has written; the
            // last line overrides them.
            let settings = replica.folder.data_folder().join("postgresql.auto.conf");
            let mut settings = fs::OpenOptions::new().append(true).open(settings)?;
            // Slots are synchronized over a connection to a database.
            let port = self.port;
            let primary = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
            Ok(writeln!(settings, "primary_conninfo = '{primary}'")?)
        })
    }

    /// Starts a server with a base backup of this one, which recovers from the backup alone.
    pub fn start_backup(&self, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_in(self.version, settings, ServerPlace::default(), |copy| {
            self.back_up_into(copy)
        })
    }

    /// As [`start_backup`](Self::start_backup), recovered to the earliest consistent point, on a
    /// new timeline.
    pub fn start_recovered(&self) -> anyhow::Result<Self> {
        let settings = [
            ("restore_command", "false"),
            ("recovery_target", "immediate"),
            ("recovery_target_action", "promote"),
        ];
        Self::start_in(self.version, &settings, ServerPlace::default(), |copy| {
            self.back_up_into(copy)?;
            let mut signal = copy.account.command("touch");
            run(signal.arg(copy.folder.data_folder().join("recovery.signal")))
        })
    }

    fn back_up_into(&self, copy: &Self) -> anyhow::Result<()> {
        let program = self.version.tool(&self.bin, "pg_basebackup")?;
        let mut backup = copy.account.command(program);
        backup
            .args(["--checkpoint=fast", "--no-sync", "--pgdata"])
            .arg(copy.folder.data_folder())
            .arg("--dbname")
            .arg(self.url("postgres"));
        run(&mut backup)
    }

    /// Starts a server with a copy of this one's files, as a snapshot of the disk. This server was
    /// stopped in order, or its processes are paused during the copy.
    pub fn start_of_files(&self, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let frozen = self.freeze()?;
        let copy = Self::start_in(self.version, settings, ServerPlace::default(), |copy| {
            let mut files = copy.account.command("cp");
            run(files
                .arg("-a")
                .arg(self.data())
                .arg(copy.folder.data_folder()))?;
            resume_processes(&frozen)?;
            match fs::remove_file(copy.folder.data_folder().join("postmaster.pid")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            }
        });
        resume_processes(&frozen)?;
        copy
    }

    /// Pauses the server's processes and returns them; empty if it does not run.
    fn freeze(&self) -> anyhow::Result<Vec<u32>> {
        let mut frozen = Vec::new();
        if let Some(postmaster) = self.pid() {
            signal(postmaster, Signal::STOP)?;
            frozen.push(postmaster);
            for child in child::children_of(postmaster)? {
                // A process that has just ended by itself is fine.
                let _ = signal(child, Signal::STOP);
                frozen.push(child);
            }
        }
        Ok(frozen)
    }

    /// Upgrades this server with `pg_upgrade` to another version, and stops it. Returns `None` if
    /// this version lacks the required programs.
    pub fn upgrade_to(&self, version: PgVersion) -> anyhow::Result<Option<Self>> {
        if !self.bin.join("pg_resetwal").exists() {
            return Ok(None);
        }
        self.stop_fast()?;
        let version = version.played_by()?;
        let new = Self::start_in(version, &[], ServerPlace::default(), |new| {
            // Both must have checksums or neither; 18 is the first version that enables them by
            // default.
            let unlike: &[&str] = match version {
                PgVersion::V18 => &["--no-data-checksums"],
                _ => &[],
            };
            new.initdb(unlike)?;
            new.take_over(self)
        });
        new.map(Some)
    }

    /// Fills this server's data folder with the data of another, while neither runs.
    fn take_over(&self, old: &Self) -> anyhow::Result<()> {
        let mut upgrade = self.account.command(self.bin.join("pg_upgrade"));
        upgrade
            .current_dir(self.folder.path())
            .args(["--username=postgres", "--no-sync", "--old-bindir"])
            .arg(&old.bin)
            .arg("--new-bindir")
            .arg(&self.bin)
            .arg("--old-datadir")
            .arg(old.data())
            .arg("--new-datadir")
            .arg(self.data())
            .args(["--old-port", &old.port.to_string()])
            .args(["--new-port", &self.port.to_string()]);
        run(&mut upgrade)
    }

    fn start_in(
        version: PgVersion,
        settings: &[(&str, &str)],
        place: ServerPlace<'_>,
        fill: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let account = Account::for_servers()?;
        let folder = match place.parent {
            None => Folder::create(account, Watchdog::over_server),
            Some(parent) => {
                Folder::create_below(&[parent.to_owned()], account, Watchdog::over_server)
            }
        };
        let mut server = Self::stopped(version, version.bin()?, settings, folder?)?;
        server.port = ports::free()?;
        if place.has_clock {
            server.clock = Some(Clock::new(server.folder.path())?);
        }
        fill(&server)?;
        // Another process may take the port between the check and the start.
        for _ in 0..5 {
            match server.launch() {
                Err(error) if server.port_is_taken() => {
                    server.port = ports::free().context(error)?;
                }
                outcome => {
                    outcome?;
                    ran::note(version.name());
                    return Ok(server);
                }
            }
        }
        bail!("five ports in a row were taken")
    }

    fn initdb(&self, more: &[&str]) -> anyhow::Result<()> {
        if more.is_empty()
            && is_first_here(self.version)
            && let Some(made) = data_folder_of_run(self.version)?
        {
            let mut copy = self.account.command("cp");
            return run(copy.arg("-a").arg(made).arg(self.folder.data_folder()));
        }
        self.initdb_itself(more)
    }

    /// Creates a data folder to copy, which no server uses.
    pub(crate) fn create_data_folder(version: PgVersion) -> anyhow::Result<Self> {
        let folder = Folder::create(Account::for_servers()?, Watchdog::over_server)?;
        let server = Self::stopped(version, version.bin()?, &[], folder)?;
        server.initdb_itself(&[])?;
        Ok(server)
    }

    fn initdb_itself(&self, more: &[&str]) -> anyhow::Result<()> {
        let mut initdb = self.account.command(self.bin.join("initdb"));
        initdb
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--pgdata",
            ])
            .arg(self.folder.data_folder())
            .args(more);
        run(&mut initdb)
    }
}

fn resume_processes(frozen: &[u32]) -> anyhow::Result<()> {
    for (at, process) in frozen.iter().enumerate() {
        let thawed = signal(*process, Signal::CONT);
        if at == 0 {
            thawed?;
        }
    }
    Ok(())
}

/// Whether this process has started no server of this version yet. A second server must have a
/// different system identifier, which a copy would not have.
fn is_first_here(version: PgVersion) -> bool {
    static STARTED: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
    let at = PgVersion::PROMISED.iter().position(|one| *one == version);
    at.is_some_and(|at| !STARTED[at].swap(true, Ordering::SeqCst))
}
