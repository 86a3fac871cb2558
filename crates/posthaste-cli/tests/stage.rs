//! A folder in which commands run, and the databases that they use.

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use posthaste_testkit::{Child, PgServer, PgVersion, Sql as _, TestDb};
use tokio_postgres::Client;

/// Longer than the duration of any command that ends without a signal.
pub(crate) const BOUND: Duration = Duration::from_secs(120);

/// Waits for the end of its input, which occurs when the test process has ended in any way. Then
/// ends the private server of folder $1 and removes the folder.
const CLEANER: &str = r#"
trap '' HUP INT TERM
while read -r _; do :; done
for data in "$1/.posthaste/data" "$2/data"; do
    read -r pid 2>/dev/null <"$data/postmaster.pid" || continue
    [ "/proc/$pid/cwd" -ef "$data" ] || continue
    kill -QUIT "$pid"
    turns=0
    while [ -e "$data/postmaster.pid" ] && [ "$turns" -lt 100 ]; do
        turns=$((turns + 1))
        sleep 0.05
    done
done
rm -rf -- "$1"
[ -z "$2" ] || rm -rf -- "$2"
"#;

/// An empty current directory for commands.
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
    cleaner: std::process::Child,
    user: Option<(u32, u32)>,
    program: PathBuf,
}

/// The exit code and output of a command that ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Stage {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::with_mode(0o755, "")
    }

    /// Makes a folder that only its owner can enter; `besides` is removed with it.
    pub(crate) fn with_mode(mode: u32, besides: &str) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().canonicalize()?;
        let folder = place.join(format!("posthaste-cli-{}-{n}", std::process::id()));
        fs::create_dir(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode))?;
        let cleaner = Command::new("/bin/sh")
            .args(["-c", CLEANER, "cleaner"])
            .arg(&folder)
            .arg(besides)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let program = env!("CARGO_BIN_EXE_posthaste").into();
        Ok(Self {
            folder,
            cleaner,
            user: None,
            program,
        })
    }

    /// Like [`Stage::new`], for commands that run as a user other than root.
    pub(crate) fn unprivileged() -> anyhow::Result<Self> {
        let mut stage = Self::new()?;
        if !rustix::process::geteuid().is_root() {
            return Ok(stage);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let nobody = users
            .lines()
            .find_map(|line| line.strip_prefix("nobody:"))
            .context("no nobody")?;
        let mut fields = nobody.split(':').skip(1);
        let mut id = || {
            fields
                .next()
                .context("no id")?
                .parse::<u32>()
                .context("no number")
        };
        let user = (id()?, id()?);
        std::os::unix::fs::chown(&stage.folder, Some(user.0), Some(user.1))?;
        // The program may be in a folder that this user cannot enter.
        let copy = stage.folder.join("posthaste");
        fs::copy(&stage.program, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        stage.program = copy;
        stage.user = Some(user);
        Ok(stage)
    }

    /// Returns the command with a private Postgres, unless the test sets `DATABASE_URL`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = posthaste_testkit::command(&self.program);
        for (name, _) in std::env::vars_os() {
            let bytes = name.as_bytes();
            if bytes.starts_with(b"PG")
                || bytes.starts_with(b"POSTHASTE_")
                || bytes == b"DATABASE_URL"
            {
                command.env_remove(name);
            }
        }
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.args(arguments).current_dir(&self.folder);
        command
    }

    /// Returns the path of the program under test.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns a command that a shell starts after `line`.
    pub(crate) fn started_by(&self, line: &str, arguments: &[&str]) -> Command {
        self.through("sh", &format!("{line}; exec \"$@\""), arguments)
    }

    /// Returns a command that this shell starts by a script with the command as `$@`.
    pub(crate) fn through(&self, shell: &str, script: &str, arguments: &[&str]) -> Command {
        let program = self.command(arguments);
        let mut command = Command::new(shell);
        command.args(["-c", script, shell]);
        command.arg(&self.program).args(arguments);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(&self.folder);
        command
    }

    /// Starts a command with a private Postgres.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> anyhow::Result<Child> {
        Child::spawn(&mut self.command(arguments))
    }

    /// Starts a command on another database.
    pub(crate) fn spawn_on(&self, database: &TestDb, arguments: &[&str]) -> anyhow::Result<Child> {
        self.spawn_at(database.url(), arguments)
    }

    /// Starts a command with this `DATABASE_URL`.
    pub(crate) fn spawn_at(&self, url: &str, arguments: &[&str]) -> anyhow::Result<Child> {
        Child::spawn(self.command(arguments).env("DATABASE_URL", url))
    }

    /// Runs a command with a private Postgres to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> anyhow::Result<CommandOutput> {
        CommandOutput::by(self.spawn(arguments)?).await
    }

    /// Runs a command on another database to its end.
    pub(crate) async fn run_on(
        &self,
        database: &TestDb,
        arguments: &[&str],
    ) -> anyhow::Result<CommandOutput> {
        CommandOutput::by(self.spawn_on(database, arguments)?).await
    }

    /// Runs a command with this `DATABASE_URL` to its end.
    pub(crate) async fn run_with_url(
        &self,
        url: &str,
        arguments: &[&str],
    ) -> anyhow::Result<CommandOutput> {
        CommandOutput::by(self.spawn_at(url, arguments)?).await
    }

    /// Returns all commands that the help lists, by their words.
    pub(crate) async fn commands(&self) -> anyhow::Result<Vec<String>> {
        let mut all = Vec::new();
        for first in self.commands_of(&[]).await? {
            let inner = self.commands_of(&[&first]).await?;
            match inner.is_empty() {
                true => all.push(first),
                false => all.extend(inner.iter().map(|second| format!("{first} {second}"))),
            }
        }
        Ok(all)
    }

    /// Returns the subcommands that the help lists, of this command or of the program.
    pub(crate) async fn commands_of(&self, command: &[&str]) -> anyhow::Result<Vec<String>> {
        let help = self.run(&[&["help"], command].concat()).await?;
        let help = help.good()?;
        let listed = help
            .split_once("\nCommands:\n")
            .map_or("", |(_, rest)| rest);
        let names = listed.lines().take_while(|line| !line.is_empty());
        // A long help continues with an indented line.
        let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        Ok(names
            .filter(|name| *name != "help")
            .map(Into::into)
            .collect())
    }

    /// Runs a command that reads `input`.
    pub(crate) async fn feed(
        &self,
        database: &TestDb,
        arguments: &[&str],
        input: &str,
    ) -> anyhow::Result<CommandOutput> {
        let mut command = self.command(arguments);
        command.env("DATABASE_URL", database.url());
        CommandOutput::by(Child::spawn_fed(&mut command, input.into())?).await
    }

    pub(crate) fn private(&self, name: &str) -> PathBuf {
        self.folder.join(".posthaste").join(name)
    }

    /// Returns the process id of the private server, as its file has it.
    pub(crate) fn server(&self) -> anyhow::Result<u32> {
        server_of(&self.private("data"))
    }

    /// A connection to the private Postgres, which must be running.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let url = fs::read_to_string(self.private("url"))?;
        posthaste_testkit::connect(url.trim()).await
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::File::create(&path)?.write_all(content.as_bytes())?;
        Ok(path)
    }
}

pub(crate) fn server_of(data: &Path) -> anyhow::Result<u32> {
    let text = fs::read_to_string(data.join("postmaster.pid"))?;
    Ok(text
        .lines()
        .next()
        .context("an empty file")?
        .trim()
        .parse()?)
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        let _ = self.cleaner.wait();
    }
}

impl CommandOutput {
    pub(crate) async fn by(mut child: Child) -> anyhow::Result<Self> {
        let status = child.exit(BOUND).await?;
        Ok(Self {
            code: status.code(),
            out: child.stdout().join("\n"),
            err: child.stderr().join("\n"),
        })
    }

    /// Returns the output of a successful command.
    pub(crate) fn good(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.code == Some(0), "{self:?}");
        Ok(self.out)
    }

    /// Returns the error line of a failed command.
    pub(crate) fn failure(self) -> anyhow::Result<String> {
        anyhow::ensure!(self.code == Some(1), "{self:?}");
        anyhow::ensure!(self.out.is_empty(), "{self:?}");
        Ok(self.err)
    }
}

/// A database with the schema of posthaste.
pub(crate) async fn database() -> anyhow::Result<TestDb> {
    let server = PgServer::shared(PgVersion::any())?;
    let copy = TestDb::from_template(server, "cli", async |url| {
        let mut client = posthaste_testkit::connect(&url).await?;
        posthaste::migrate(&mut client).await?;
        Ok(())
    })
    .await?;
    // A worker sends this statement when it starts.
    Ok(copy.with_first_statement("SELECT posthaste.check_identity()"))
}

/// Returns an empty database.
pub(crate) async fn empty_database() -> anyhow::Result<TestDb> {
    TestDb::empty(PgServer::shared(PgVersion::any())?).await
}

/// Starts a server with a logical log, and makes an empty database on it.
pub(crate) async fn with_logical_log() -> anyhow::Result<(PgServer, TestDb)> {
    let server = PgServer::start(PgVersion::any(), &[("wal_level", "logical")])?;
    let database = TestDb::empty(&server).await?;
    Ok((server, database))
}

/// Starts a separate server without prepared transactions, and makes a database with our roles.
pub(crate) async fn with_roles(stage: &Stage) -> anyhow::Result<(PgServer, TestDb, Client)> {
    let server = PgServer::start(PgVersion::any(), &[("max_prepared_transactions", "0")])?;
    let db = TestDb::empty(&server).await?;
    stage
        .run_with_url(db.url(), &["migrate", "--roles"])
        .await?
        .good()?;
    let client = db.client().await?;
    Ok((server, db, client))
}

/// Starts a server with a read-only role; returns the address of the database for that role.
pub(crate) async fn somebody_who_looks(
    stage: &Stage,
) -> anyhow::Result<(PgServer, TestDb, String)> {
    let (server, db, client) = with_roles(stage).await?;
    client
        .run(
            "SELECT posthaste.check_identity();
             CREATE ROLE looker LOGIN; GRANT posthaste_observer TO looker",
        )
        .await?;
    let as_looker = db
        .url()
        .replace("postgres://postgres@", "postgres://looker@");
    Ok((server, db, as_looker))
}
