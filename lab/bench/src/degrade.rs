//! `degrade` and `gate`: a queue under load while something holds the xmin horizon.

mod algorithm;
mod crew;
mod drain;
mod figures;
mod gate;
mod holder;
mod ledger;
mod live;
mod parameters;
mod producer;
mod report;
mod run;
mod sample;
mod scenario;
mod scene;
mod series;
mod span;
#[cfg(test)]
mod tests;
mod worker;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use posthaste_testkit::{PgServer, PgVersion};

use self::algorithm::Algorithm;
use self::figures::Figures;
use self::live::LiveView;
use self::report::{Played, Report};
use self::sample::Sample;
use self::scenario::{HoldKind, Scenario};
use crate::machine::Machine;
use crate::server;
use crate::statements::Statements;

/// The backlog, in seconds of jobs, above which a queue does not keep up.
const BEHIND_SECONDS: f64 = 2.0;

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct DegradeOptions {
    /// File of a scenario, or name of a built-in scenario
    pub(crate) scenario: String,
    /// Only these algorithms, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// File of an additional queue, with the statements `schema`, `enqueue`, `claim` and `finish`
    #[arg(long)]
    pub(crate) queue: Vec<PathBuf>,
    /// Speed factor (default: from the scenario)
    #[arg(long)]
    pub(crate) speed: Option<f64>,
    /// Major version of Postgres, 15 to 18 (default: from the scenario)
    #[arg(long)]
    pub(crate) pg: Option<PgVersion>,
    /// Directory for the data of the private server; not on a tmpfs
    #[arg(long)]
    pub(crate) data_parent: Option<PathBuf>,
    /// Folder to which the report is written: a page, its samples and a summary
    #[arg(long, default_value = "target/degrade")]
    pub(crate) out: PathBuf,
}

/// The statements with which `degrade` observes the server.
fn instruments() -> Statements {
    Statements::parse(include_str!("../locking/degrade.sql"))
}

/// Runs a scenario and writes its report; returns the gate's answer as the exit code.
pub(crate) async fn run(options: &DegradeOptions) -> Result<ExitCode> {
    let scenario = Scenario::find(&options.scenario)?.with_speed(options.speed)?;
    let algorithms = chosen(options, &scenario)?;
    let server = start(options, &scenario)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let started_at = Timestamp::now();
    let stem = format!(
        "{}-{}",
        short_name(&options.scenario),
        started_at.strftime("%Y-%m-%d-%H%M")
    );
    let path = |ending: &str| options.out.join(format!("{stem}.{ending}"));
    let mut lines = BufWriter::new(File::create(path("jsonl"))?);
    let mut report = Report {
        title: scenario.title(),
        started_at: started_at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        machine: Machine::describe()?,
        server: version(&server).await?,
        rate: scenario.rate(),
        workers: scenario.work.workers,
        played: Vec::new(),
    };
    eprintln!("{}", report.title);
    let mut view = LiveView::open();
    for algorithm in &algorithms {
        let show = |sample: &Sample| view.show(sample);
        let outcome = run::play(&server, &scenario, algorithm, &mut lines, show);
        let outcome = outcome.await;
        let behind = (scenario.rate() * BEHIND_SECONDS) as u64;
        let figures = Figures::read(&outcome, behind);
        let limits = scenario.limits(&algorithm.name);
        let judgements = gate::judge(&outcome, figures.as_ref(), limits);
        report.played.push(Played {
            outcome,
            figures,
            judgements,
            source: algorithm.source,
        });
        // Written after each algorithm, so that an interrupted run keeps its results.
        fs::write(path("html"), report.page()?)?;
        fs::write(path("json"), report.summary()?)?;
    }
    eprintln!("\n{}", report.text());
    eprintln!("report: {}", path("html").display());
    Ok(ExitCode::from(report.verdict().exit_code()))
}

fn chosen(options: &DegradeOptions, scenario: &Scenario) -> Result<Vec<Algorithm>> {
    let mut names = if options.only.is_empty() && !options.queue.is_empty() {
        Vec::new()
    } else {
        scenario.names()?
    };
    if !options.only.is_empty() {
        names.clone_from(&options.only);
    }
    let shipped = names.iter().map(|name| Algorithm::shipped(name));
    let own = options.queue.iter().map(|file| Algorithm::from_file(file));
    shipped.chain(own).collect()
}

fn start(options: &DegradeOptions, scenario: &Scenario) -> Result<PgServer> {
    let version = match (options.pg, scenario.server.version) {
        (Some(version), _) => version,
        (None, Some(number)) => PgVersion::from_str(&number.to_string())
            .map_err(|error| anyhow::anyhow!("server.version: {error}"))?,
        (None, None) => PgVersion::V15,
    };
    let mut settings = vec![
        ("shared_preload_libraries", "pg_stat_statements"),
        // A dump reads hot tables at the same time, and eight workers and many producers need room.
        ("max_connections", "120"),
    ];
    if scenario.hold.iter().any(|hold| hold.kind == HoldKind::Slot) {
        settings.push(("wal_level", "logical"));
    }
    let own = &scenario.server.settings;
    settings.extend(
        own.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    let parent = options.data_parent.clone();
    server::start_with(
        version,
        &parent.unwrap_or_else(std::env::temp_dir),
        &settings,
    )
}

async fn version(server: &PgServer) -> Result<String> {
    let client = crate::database::Database::named(&server.url("postgres"))?
        .connect()
        .await?;
    let version = crate::database::instruments().get("version")?;
    Ok(client.query_one(version, &[]).await?.get(0))
}

/// The name of a file without folder and extension.
fn short_name(scenario: &str) -> String {
    let path = PathBuf::from(scenario);
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
