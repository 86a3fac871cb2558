//! The second run on real input: tens of thousands of packages in a table, and an index that is
//! kept equal to it while the loading process is killed, documents are deleted directly, and rows
//! are changed and deleted. A capture reads the same changes.

mod captured;
mod input;
mod proof;
mod report;

pub(crate) mod load;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use posthaste_sync::Synced;
use tokio::process::{Child, Command};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::run::prepare_tables;
use crate::connect::Address;
use crate::database::Database;
use crate::file::{self, DEFAULT_FILE, NeededSections};
use crate::progress::Unit;
use crate::terminal::Terminal;
use crate::worker::StopGrace;
use captured::Captured;
use proof::Proof;
pub(super) use report::Report;
use report::SEARCH_QUERY;

/// Files in the folder of the database: the packages to load, and the log of the loading process.
const PACKAGES_FILE: &str = "packages.ndjson";
const LOG_FILE: &str = "packages.log";

/// How many times the loading process is killed, the last time when everything is committed and not
/// yet indexed.
const KILL_COUNT: i32 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const TABLES: [(&str, &str); 2] = [
    (
        "public.package",
        "posthaste_version bigint, hidden boolean, name text, release text, section text, \
         summary text, details text",
    ),
    (
        "public.package_run",
        "id bigint, total bigint, loaded bigint, changed bigint, deleted bigint, kills integer, \
         removed bigint, proven_at timestamp with time zone, source text",
    ),
];

/// Options for the packages.
#[derive(clap::Args)]
pub(crate) struct Packages {
    /// Then load this machine's packages (apt-cache dumpavail) into a table with a synced search
    /// index, and kill the loading process repeatedly
    #[arg(long)]
    packages: bool,

    /// Like --packages, with packages from a file: one JSON object per line, with name, release,
    /// section, summary and details
    #[arg(long, value_name = "FILE")]
    packages_from: Option<PathBuf>,
}

/// A load with a complete list of packages.
struct Load {
    run: i64,
    packages: u64,
    /// How many times its process was killed, and how many documents were deleted, by earlier runs
    /// of the demo.
    kills: i32,
    removed: u64,
    folder: PathBuf,
    table: Synced,
    captured: Option<Captured>,
}

impl Packages {
    pub(super) fn are_asked_for(&self) -> bool {
        self.packages || self.packages_from.is_some()
    }

    /// Runs the load and the proof; `None` if they were not requested, or there is nothing to load.
    pub(super) async fn run(
        &self,
        database: &Database,
        patience: &StopGrace,
        terminal: &Terminal,
    ) -> anyhow::Result<Option<Report>> {
        if !self.are_asked_for() {
            return Ok(None);
        }
        let begun = Instant::now();
        let folder = database.folder();
        std::fs::create_dir_all(folder)?;
        let folder = std::fs::canonicalize(folder)?;
        let client = database.address().connect().await?;
        let address = database.address();
        let Some(load) = self.load(&client, address, folder, terminal).await? else {
            return Ok(None);
        };
        let (kills, removed) = load
            .run_with_kills(&client, database, patience, terminal)
            .await?;
        let proof = Proof::compute(&client, &load.table, address, SEARCH_QUERY).await?;
        let captured = match load.captured {
            Some(captured) => Some(captured.fold_and_remove(address).await?),
            None => None,
        };
        let (_, changed, deleted) = load_progress(&client, load.run).await?;
        client
            .execute_typed(
                include_str!("packages/proven.sql"),
                &[(&load.run, Type::INT8)],
            )
            .await?;
        Ok(Some(Report {
            problem: proof.problem(removed),
            seconds: begun.elapsed().as_secs_f64(),
            packages: load.packages,
            changed,
            deleted,
            kills,
            removed,
            missing: proof.before.missing,
            rows: proof.postgres.0,
            documents: proof.index.0,
            digest: proof.postgres.1,
            search: proof.search,
            captured,
        }))
    }

    /// Continues an unfinished load by its list, or begins one with a new list. `None` if this
    /// machine has no list of packages.
    async fn load(
        &self,
        client: &Client,
        address: &Address,
        folder: PathBuf,
        terminal: &Terminal,
    ) -> anyhow::Result<Option<Load>> {
        prepare_tables(client, &TABLES, include_str!("packages/schema.sql")).await?;
        let list = folder.join(PACKAGES_FILE);
        let source = match &self.packages_from {
            Some(file) => std::path::absolute(file)?.display().to_string(),
            None => "apt-cache dumpavail".to_owned(),
        };
        if list.exists()
            && let Some(mut load) = Load::unproven(client, &folder, &source).await?
        {
            terminal.print_remark(&format!("continuing load {} of packages", load.run));
            load.install(client, address, false, terminal).await?;
            return Ok(Some(load));
        }
        let packages = match &self.packages_from {
            Some(file) => input::copy_package_lines(file, &list)?,
            None => {
                let Some(packages) = input::write_apt_packages(&list)? else {
                    terminal.print_remark(
                        "this machine has no list of packages (apt-cache dumpavail); \
                         --packages-from takes a file",
                    );
                    return Ok(None);
                };
                packages
            }
        };
        let mut load = Load::begin(client, folder, packages, &source).await?;
        load.install(client, address, true, terminal).await?;
        Ok(Some(load))
    }
}

impl Load {
    async fn unproven(
        client: &Client,
        folder: &Path,
        source: &str,
    ) -> anyhow::Result<Option<Self>> {
        let sql = include_str!("packages/unproven.sql");
        let found = client
            .query_typed_opt(sql, &[(&source, Type::TEXT)])
            .await?;
        let Some(row) = found else { return Ok(None) };
        let packages = row.try_get::<_, i64>("total")?.unsigned_abs();
        Ok(Some(Self {
            run: row.try_get("id")?,
            packages,
            kills: row.try_get("kills")?,
            removed: row.try_get::<_, i64>("removed")?.unsigned_abs(),
            table: synced_table(packages)?,
            folder: folder.to_owned(),
            captured: None,
        }))
    }

    async fn begin(
        client: &Client,
        folder: PathBuf,
        packages: u64,
        source: &str,
    ) -> anyhow::Result<Self> {
        let row = client
            .query_typed_one(
                include_str!("packages/begin.sql"),
                &[
                    (&i64::try_from(packages)?, Type::INT8),
                    (&source, Type::TEXT),
                ],
            )
            .await?;
        Ok(Self {
            run: row.try_get(0)?,
            packages,
            kills: 0,
            removed: 0,
            table: synced_table(packages)?,
            folder,
            captured: None,
        })
    }

    /// Installs the triggers of the table, and its capture if the database supports it, and writes
    /// the settings of both.
    async fn install(
        &mut self,
        client: &Client,
        address: &Address,
        is_new: bool,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let triggers = self.table.install_statement(client).await?;
        client.batch_execute(&triggers).await?;
        let mut settings = sync_settings(self.packages);
        match Captured::install(client, address, &self.folder, is_new).await? {
            Ok(captured) => {
                settings.push_str(captured::CAPTURE_SETTINGS);
                self.captured = Some(captured);
            }
            Err(problem) => {
                terminal.print_remark(&format!("the packages are not captured: {problem}"))
            }
        }
        let file = self.folder.join(DEFAULT_FILE);
        std::fs::write(&file, settings).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Kills the loading process at random points, then waits for the last one to finish. Returns
    /// how many times it was killed, and how many documents were deleted.
    async fn run_with_kills(
        &self,
        client: &Client,
        database: &Database,
        patience: &StopGrace,
        terminal: &Terminal,
    ) -> anyhow::Result<(i32, u64)> {
        terminal.print_remark(
            "the loader process is killed on purpose; warnings about a dead worker below come from \
             that",
        );
        let progress = terminal.progress("indexing", Some(self.packages), Unit::Rows);
        let (loaded, ..) = load_progress(client, self.run).await?;
        let point = |_| fastrand::u64(loaded.min(self.packages)..=self.packages);
        let mut points: Vec<u64> = (self.kills + 1..KILL_COUNT).map(point).collect();
        if self.kills < KILL_COUNT {
            points.push(self.packages);
        }
        points.sort_unstable();
        let (mut kills, mut removed) = (self.kills, self.removed);
        for point in points {
            let mut child = self.spawn(database, patience)?;
            loop {
                let (loaded, ..) = load_progress(client, self.run).await?;
                progress.set(loaded);
                if loaded >= point {
                    break;
                }
                if let Some(status) = child.try_wait()? {
                    self.check_child_exit(status)?;
                    break;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..700))).await;
            if child.try_wait()?.is_none() {
                child.kill().await?;
                kills += 1;
                progress.show_message(format!("killed {kills} times"));
            }
            removed = proof::remove_some(client, self.run, kills).await?;
        }
        let status = self.spawn(database, patience)?.wait().await?;
        self.check_child_exit(status)?;
        Ok((kills, removed))
    }

    fn spawn(&self, database: &Database, patience: &StopGrace) -> anyhow::Result<Child> {
        let log = self.folder.join(LOG_FILE);
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let changes = match &self.captured {
            Some(captured) => captured.output()?,
            None => Stdio::null(),
        };
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("load")
            .args([self.folder.as_os_str(), self.run.to_string().as_ref()])
            .args(patience.as_options())
            .env("DATABASE_URL", database.url())
            .stdin(Stdio::null())
            .stdout(changes)
            .stderr(log)
            .kill_on_drop(true);
        command.spawn().context("cannot start the loading process")
    }

    fn check_child_exit(&self, status: std::process::ExitStatus) -> anyhow::Result<()> {
        if status.success() {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.join(LOG_FILE)).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it printed nothing");
        Err(anyhow!("the loading process failed: {last}"))
    }
}

/// Returns how many rows are committed, were changed, and were deleted.
async fn load_progress(client: &Client, run: i64) -> anyhow::Result<(u64, u64, u64)> {
    let row = client
        .query_typed_one(include_str!("packages/far.sql"), &[(&run, Type::INT8)])
        .await?;
    let number = |column| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
    Ok((number("loaded")?, number("changed")?, number("deleted")?))
}

/// Returns the synced table of the settings.
fn synced_table(packages: u64) -> anyhow::Result<Synced> {
    let mut tables = file::parse_sections(&sync_settings(packages), NeededSections::Tables)?.tables;
    tables.pop().context("the table does not exist")
}

/// Returns the settings of the synced table as a user would write them: `posthaste sync search`
/// reads them too.
fn sync_settings(packages: u64) -> String {
    let batch = (packages / 100).clamp(25, 250);
    format!(
        "# Written by 'posthaste demo'.\n\
         [sync.package]\n\
         table = \"public.package\"\n\
         id = \"name\"\n\
         deleted = \"hidden\"\n\
         delay = \"1s\"\n\
         period = \"1s\"\n\
         # Jobs that a killed process held are checked together, a batch at a time.\n\
         batch = {batch}\n\
         index = \"postgres:demo_package\"\n\
         document = {{ name = \"name\", summary = \"summary\", details = \"details\" }}\n\
         fields = {{ name = \"B\", summary = \"A\", details = \"D\" }}\n"
    )
}
