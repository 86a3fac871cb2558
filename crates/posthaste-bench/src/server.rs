//! A private Postgres for one run of the bench.
//!
//! It lives in a folder of its own, listens on 127.0.0.1 with a random password, and ends with its
//! owner: by [`Server::stop`], by drop, or by the kernel's parent-death signal where the bench is killed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The unprivileged user that runs Postgres where the bench runs as root.
const SERVICE_USER: &str = "postgres";

/// The folder of a run is named by this and the bench's process id.
const FOLDER_PREFIX: &str = "posthaste-bench-";

const START_LIMIT: Duration = Duration::from_secs(60);

/// Settings that every contestant meets.  Durability is on; checkpoints are rare enough not to decide
/// a round; autovacuum wakes often, because a rival that waits a minute for it would be wronged.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("jit", "off"),
    ("shared_buffers", "1GB"),
    ("work_mem", "16MB"),
    ("maintenance_work_mem", "256MB"),
    ("max_connections", "64"),
    ("max_wal_size", "32GB"),
    ("min_wal_size", "2GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "on"),
    ("autovacuum_naptime", "5s"),
    ("autovacuum_max_workers", "3"),
    ("max_prepared_transactions", "8"),
    ("log_min_messages", "warning"),
    // Read back by `claims.rs`: seconds since the epoch, the session's name, its transaction's id or 0.
    ("log_line_prefix", "%n %a %x "),
    ("log_parameter_max_length", "0"),
];

/// A running server and the way in.
#[derive(Debug)]
pub(crate) struct Server {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    password: String,
    postmaster: Option<Child>,
}

impl Server {
    /// Creates a cluster below `parent` and starts it.
    ///
    /// Call it on the main thread: the parent-death signal follows the thread that started the child.
    pub(crate) fn start(bin: &Path, parent: &Path) -> Result<Self> {
        sweep(parent);
        let folder = parent.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o711))?;
        let mut server = Self {
            bin: bin.to_owned(),
            folder,
            port: free_port()?,
            password: random_password()?,
            postmaster: None,
        };
        server.initialise()?;
        server.launch()?;
        Ok(server)
    }

    /// A connection string for one database of this server.
    pub(crate) fn url(&self, database: &str) -> String {
        let Self { port, password, .. } = self;
        format!("postgres://bench:{password}@127.0.0.1:{port}/{database}")
    }

    /// The process from which all server processes descend.
    pub(crate) fn postmaster_pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::id)
    }

    /// Where the cluster's files lie.
    pub(crate) fn data_folder(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The server's log, durations of watched sessions included.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// A client program of the same installation, pointed at this server.
    pub(crate) fn client_program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", "bench")
            .env("PGPASSWORD", &self.password);
        command
    }

    /// Stops the server and removes its folder.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(mut postmaster) = self.postmaster.take() {
            // Nothing of it is kept, so nothing needs to be written before it ends.
            let asked = self
                .as_service_user("pg_ctl")
                .args(["stop", "--mode=immediate", "--wait", "--silent", "--pgdata"])
                .arg(self.data_folder())
                .status();
            if !asked.is_ok_and(|status| status.success()) {
                postmaster.kill()?;
            }
            postmaster.wait()?;
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .with_context(|| format!("cannot remove {}", self.folder.display()))?;
        }
        Ok(())
    }

    fn initialise(&self) -> Result<()> {
        let password_file = self.folder.join("password");
        fs::write(&password_file, &self.password)?;
        fs::set_permissions(&password_file, fs::Permissions::from_mode(0o600))?;
        fs::create_dir(self.data_folder())?;
        if running_as_root()? {
            let (user, group) = service_ids()?;
            chown(&password_file, Some(user), Some(group))?;
            chown(self.data_folder(), Some(user), Some(group))?;
        }
        let output = self
            .as_service_user("initdb")
            .args([
                "--username=bench",
                "--encoding=UTF8",
                "--locale=C",
                "--auth=scram-sha-256",
            ])
            .arg(format!("--pwfile={}", password_file.display()))
            .arg("--pgdata")
            .arg(self.data_folder())
            .output()
            .context("cannot run initdb")?;
        ensure!(
            output.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::remove_file(password_file)?;
        let settings = self.data_folder().join("postgresql.conf");
        let mut text = fs::read_to_string(&settings)?;
        text.push_str(&format!(
            "\nlisten_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\n",
            self.port
        ));
        for (name, value) in SETTINGS {
            text.push_str(&format!("{name} = '{value}'\n"));
        }
        fs::write(settings, text)?;
        Ok(())
    }

    fn launch(&mut self) -> Result<()> {
        let log = fs::File::create(self.log())?;
        let mut command = self.as_service_user("postgres");
        command
            .arg("-D")
            .arg(self.data_folder())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C in the terminal is for the bench; the server is stopped by it afterwards.
            .process_group(0);
        self.postmaster = Some(command.spawn().context("cannot start postgres")?);
        let deadline = Instant::now() + START_LIMIT;
        while !self.answers()? {
            let ended = self
                .postmaster
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || Instant::now() > deadline {
                bail!(
                    "postgres did not start: {}",
                    fs::read_to_string(self.log())?
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn answers(&self) -> Result<bool> {
        let status = self
            .client_program("pg_isready")
            .arg("--quiet")
            .status()
            .context("cannot run pg_isready")?;
        Ok(status.success())
    }

    /// A server program under the user that may run it, dying with the bench.
    fn as_service_user(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "INT"]);
        if running_as_root().unwrap_or(false) {
            command.args([
                &format!("--reuid={SERVICE_USER}"),
                &format!("--regid={SERVICE_USER}"),
                "--clear-groups",
            ]);
        }
        command.arg(self.bin.join(program)).current_dir("/");
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("the private server was not stopped cleanly: {error:#}");
        }
    }
}

/// The version that bars are measured on where it is installed, so that reports stay comparable.
const MEASURED_VERSION: u32 = 15;

/// Finds the measured version of Postgres on this machine, else the newest, or takes the folder that was asked for.
pub(crate) fn find_programs(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = asked {
        ensure!(
            folder.join("initdb").is_file(),
            "{} holds no initdb",
            folder.display()
        );
        return Ok(folder.to_owned());
    }
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut installed: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    installed
        .sort_by_key(|(version, _)| (*version != MEASURED_VERSION, std::cmp::Reverse(*version)));
    installed
        .into_iter()
        .map(|(_, folder)| folder)
        .chain(std::env::split_paths(&on_path))
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
        .context("no Postgres server found; install postgresql-15 or name its folder with --pg-bin")
}

/// The type of the file system that holds a folder: on a tmpfs, fsync would measure nothing.
pub(crate) fn file_system(folder: &Path) -> Result<String> {
    let device = fs::metadata(folder)?.dev();
    let mounts = fs::read_to_string("/proc/mounts")?;
    Ok(mounts
        .lines()
        .rev()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .find(|(point, _)| fs::metadata(point).is_ok_and(|found| found.dev() == device))
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned()))
}

/// Removes what benches left behind that were killed: their servers died with them, their folders did not.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Somebody else's folder cannot be removed, and need not be.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn random_password() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?
        .trim()
        .replace('-', ""))
}

fn running_as_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

fn service_ids() -> Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(SERVICE_USER))
        .with_context(|| format!("Postgres refuses root and there is no user {SERVICE_USER}; create one or run the bench as yourself"))?;
    let fields: Vec<_> = line.split(':').collect();
    match fields[..] {
        [_, _, user, group, ..] => Ok((user.parse()?, group.parse()?)),
        _ => bail!("/etc/passwd has a line that cannot be read: {line}"),
    }
}
