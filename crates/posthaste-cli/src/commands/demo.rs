//! `posthaste demo`: runs what `posthaste up` runs, and verifies a run on real input.
//!
//! The demo lists real files and commits a row and a job for each file in one transaction. A worker
//! writes size and SHA-256 in the transaction that completes the job. At the end the demo compares
//! the table with `sha256sum`. An optional second run keeps a search index equal to a table of
//! packages.

mod digest;
mod handler;
mod report;
mod run;
mod snapshot;
mod verify;

pub(crate) mod packages;

use std::future::pending;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use deadpool_postgres::Pool;
use indicatif::HumanCount;
use posthaste::QueueConfig;
use tokio_postgres::Client;

use super::up;
use crate::database::Database;
use crate::progress::Unit;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, RunningWorker, Settings};
use packages::Packages;
use report::Report;
use run::{Figures, Run};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time without progress after which the demo checks whether any job is left.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of a job: large files take long.
const JOB_TIMEOUT: Duration = Duration::from_secs(3_600);
/// The handler holds a connection twice for a short time, so fewer connections than concurrent jobs
/// suffice.
const MAX_CONNECTIONS: usize = 16;

/// Run posthaste on real input: start what 'posthaste up' starts, run a job for each file of a
/// folder, and compare the results with sha256sum
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder whose files are digested, including subfolders
    #[arg(default_value = "/usr/share")]
    folder: PathBuf,

    /// Exit after the comparison; exit code 1 if anything differs
    #[arg(long)]
    once: bool,

    /// Number of files to process concurrently
    #[arg(
        long,
        default_value_t = 32,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    concurrency: u16,

    /// Only process files for a demo that is running on the same database; you can kill this
    /// process at any time
    #[arg(
        long,
        conflicts_with_all = [
            "folder", "once", "packages", "packages_from", "commands", "addresses",
        ]
    )]
    join: bool,

    #[command(flatten)]
    packages: Packages,

    #[command(flatten)]
    system: up::Arguments,
}

impl Arguments {
    /// Whether the command runs until it is stopped.
    pub(crate) fn is_long_running(&self) -> bool {
        !self.once
    }

    /// Fails if the options contradict each other. Called before the database is opened.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.system.check()
    }

    /// Adds the queue of the files and its handler.
    fn add_file_queue(&self, settings: Settings, pool: &Pool) -> Settings {
        let pool = pool.clone();
        let concurrency = usize::from(self.concurrency);
        settings
            .queue(QueueConfig {
                timeout: JOB_TIMEOUT,
                ..QueueConfig::new(run::QUEUE_NAME, concurrency)
            })
            .handlers(move |builder| {
                builder.handler(run::JOB_NAME, move |context, job| {
                    handler::file_digest(pool.clone(), context, job)
                })
            })
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let pool = database.address().pool(MAX_CONNECTIONS)?;
    let outcome = match arguments.join {
        true => join(arguments, database, terminal, signals, &pool).await,
        false => run_demo(arguments, database, terminal, signals, &pool).await,
    };
    pool.close();
    outcome
}

/// Works on the files of a demo that runs in another process.
async fn join(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
    pool: &Pool,
) -> anyhow::Result<()> {
    let settings = Settings::new(arguments.system.patience());
    let settings = arguments.add_file_queue(settings, pool);
    let worker = worker::start(database.address(), settings).await?;
    let queues = worker.queues_text().unwrap_or_default();
    let text = format!("working on {queues}; Ctrl-C stops");
    terminal.report_event("working", &text, &worker.queues_json())?;
    worker.run_until(pending(), database, signals).await
}

async fn run_demo(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
    pool: &Pool,
) -> anyhow::Result<()> {
    let settings = arguments.system.prepare(database, terminal).await?;
    let settings = arguments.add_file_queue(settings, pool);
    let client = database.address().connect().await?;
    let mut worker = worker::start(database.address(), settings).await?;
    let outcome = tokio::select! {
        outcome = run_steps(arguments, database, client, terminal) => outcome,
        () = signals.stop_token().cancelled() => Err(anyhow!("stopped before the comparison. Run \
            the same command again to continue.")),
        error = worker.wait_for_end() => Err(error),
    };
    let outcome = keep_running(outcome, arguments, database, terminal, signals, &mut worker).await;
    let stopped = worker.stop().await;
    outcome.and(stopped)
}

/// Unless `--once` is given, the worker continues for other clients.
async fn keep_running(
    outcome: anyhow::Result<Report>,
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
    worker: &mut RunningWorker,
) -> anyhow::Result<()> {
    let interrupted = signals.stop_token().is_cancelled();
    if arguments.once || interrupted {
        return match outcome {
            Err(_) if interrupted && !arguments.once => Ok(()),
            Err(error) => Err(error),
            Ok(report) => report.verdict(),
        };
    }
    if let Err(error) = outcome?.verdict() {
        terminal.print_remark(&crate::failure::error_line(&error));
    }
    let queues = worker.queues_text().unwrap_or_default();
    let text = format!("the worker continues with {queues}; Ctrl-C stops it");
    terminal.report_event("working", &text, &worker.queues_json())?;
    tokio::select! {
        () = signals.stop_token().cancelled() => Ok(()),
        error = database.wait_until_gone() => Err(error),
        error = worker.wait_for_end() => Err(error),
    }
}

async fn run_steps(
    arguments: &Arguments,
    database: &Database,
    mut client: deadpool_postgres::Client,
    terminal: &Terminal,
) -> anyhow::Result<Report> {
    let packages = &arguments.packages;
    let run = Run::open(
        &mut client,
        &arguments.folder,
        database.private_folder(),
        packages.are_asked_for(),
        terminal,
    )
    .await?;
    announce(&run, terminal);
    let mut report = match &run.proof {
        Some(proof) => serde_json::from_value(proof.clone())?,
        None => digest_files(&run, database, &mut client, terminal).await?,
    };
    report.packages = packages
        .run(database, &arguments.system.patience(), terminal)
        .await?;
    run.finish(&client).await?;
    terminal.print_outcome("report", &report, &report)?;
    Ok(report)
}

/// Commits rows and jobs for the listed files, waits for them, and compares the result.
async fn digest_files(
    run: &Run,
    database: &Database,
    client: &mut deadpool_postgres::Client,
    terminal: &Terminal,
) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let watching = database.address().connect().await?;
    let all_committed = AtomicBool::new(false);
    let commit = async {
        run.commit_all(client).await?;
        all_committed.store(true, Ordering::Relaxed);
        Ok(())
    };
    let ((), figures) = tokio::try_join!(
        commit,
        wait_for_digests(run, &watching, terminal, &all_committed)
    )?;
    let seconds = begun.elapsed().as_secs_f64();
    let proof = {
        let progress = terminal.progress("proving", Some(run.files), Unit::Files);
        verify::verify(&watching, run.id, &progress).await?
    };
    let differing = proof.differing;
    let report = Report::new(run, figures, proof, seconds);
    let proof = serde_json::to_value(&report)?;
    run.prove(&watching, differing, &proof).await?;
    Ok(report)
}

fn announce(run: &Run, terminal: &Terminal) {
    let (folder, files) = (run.folder.display(), HumanCount(run.files));
    if run.proof.is_some() {
        terminal.print_remark(&format!(
            "continuing run {}: its {files} files below {folder} were verified before",
            run.id
        ));
    } else if run.continued {
        let committed = HumanCount(run.committed_before);
        terminal.print_remark(&format!(
            "continuing run {}: {committed} of {files} files below {folder} were committed",
            run.id
        ));
    } else {
        terminal.print_remark(&format!("run {}: {files} files below {folder}", run.id));
    }
    if run.unreadable_folders > 0 {
        terminal.print_remark(&format!(
            "{} folders could not be read and are skipped",
            run.unreadable_folders
        ));
    }
}

/// Polls until every file is processed or dead, or until no job is left that could process one.
async fn wait_for_digests(
    run: &Run,
    client: &Client,
    terminal: &Terminal,
    all_committed: &AtomicBool,
) -> anyhow::Result<Figures> {
    let progress = terminal.progress("working", Some(run.files), Unit::Files);
    let mut last: Option<Figures> = None;
    let mut moved = Instant::now();
    loop {
        let asked = Instant::now();
        let figures = run.figures(client).await?;
        if last != Some(figures) {
            moved = asked;
            last = Some(figures);
        }
        progress.set(figures.worked + figures.dead);
        progress.show_message(figures.progress_remark());
        if figures.worked + figures.dead >= run.files {
            return Ok(figures);
        }
        if all_committed.load(Ordering::Relaxed) && moved.elapsed() > STALL_TIMEOUT {
            progress.show_message("waiting for the jobs of a worker that was killed");
            if run.count_unfinished_jobs(client).await? == 0 {
                // The last job may have ended between the two queries.
                let figures = run.figures(client).await?;
                return Ok(figures);
            }
        }
        // The pause grows with the duration of a query, to leave the database and the machine to
        // the worker.
        tokio::time::sleep(POLL_INTERVAL.max(asked.elapsed() * 10)).await;
    }
}

impl Figures {
    fn progress_remark(&self) -> String {
        let mut remark = format!("{} committed", HumanCount(self.committed));
        if self.retried > 0 {
            remark.push_str(&format!(", {} retried", self.retried));
        }
        if self.dead > 0 {
            remark.push_str(&format!(", {} dead", self.dead));
        }
        remark
    }
}
