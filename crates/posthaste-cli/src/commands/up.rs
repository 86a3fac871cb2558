//! `posthaste up`: from nothing to a proven run on real input.
//!
//! A database, its schema, a list of real files; a row and a job for each file in the same
//! transaction; a worker that writes size and SHA-256 in the transaction that completes the job;
//! and at the end the table against `sha256sum`. If asked, a second run: a search index that is kept true
//! to a table of packages.

mod digest;
mod run;
mod snapshot;
mod verify;

pub(crate) mod handler;
pub(crate) mod packages;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use indicatif::HumanCount;
use serde::Serialize;
use tokio_postgres::Client;

use crate::database::Database;
use crate::file::{self, FILE};
use crate::signals::Signals;
use crate::terminal::{Terminal, Unit};
use crate::worker::{self, Patience, Running, Settings};
use crate::{routes, syncs};
use packages::Packages;
use run::{Figures, Run};
use verify::Proof;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After this long without progress we ask whether any job is left at all.
const QUIET: Duration = Duration::from_secs(5);

/// Run everything: a private Postgres if none is given, the schema, a worker, the relays and syncs
/// of a posthaste.toml if there is one, and a real job
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder whose files are digested
    #[arg(default_value = "/usr/share")]
    folder: PathBuf,

    /// Exit after the proof; not 0 if anything differs
    #[arg(long)]
    once: bool,

    /// Files worked on at the same time
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,

    #[command(flatten)]
    packages: Packages,

    #[command(flatten)]
    patience: Patience,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    if let Some(private) = database.private() {
        let verb = if private.adopted() {
            "runs already"
        } else {
            "started"
        };
        let (place, folder) = (private.address().place(), private.folder().display());
        terminal.note(&format!(
            "private Postgres {verb}: {place}, data in {folder}"
        ));
    }
    let file = file::read(Path::new(FILE))?.unwrap_or_default();
    let mut client = database.address().connect().await?;
    posthaste::migrate(&mut client).await?;
    let queues = [run::QUEUE, "default"].map(|queue| (queue.to_owned(), arguments.concurrency));
    let relays = routes::start(file.routes, database.address()).await?;
    for one in &relays {
        terminal.note(&one.to_string());
    }
    let syncs = syncs::start(file.tables, database.address(), None).await?;
    for one in &syncs {
        terminal.note(&one.to_string());
    }
    let relays = relays.into_iter().map(|one| (one.queue, one.relay));
    let settings = Settings {
        queues: queues.into(),
        relays: relays.collect(),
        syncs: syncs.into_iter().flat_map(|one| one.syncs).collect(),
        ..Settings::new(arguments.patience)
    };
    let mut worker = worker::start(database.address(), settings).await?;
    let outcome = tokio::select! {
        outcome = story(arguments, database, client, terminal) => outcome,
        () = signals.stop().cancelled() => Err(anyhow!("stopped before the proof. Run the same command again to continue.")),
        error = worker.ended() => Err(error),
    };
    let outcome = stay(outcome, arguments, database, terminal, signals, &mut worker).await;
    let stopped = worker.stop().await;
    outcome.and(stopped)
}

/// Unless `--once`, the worker goes on for whoever enqueues next.
async fn stay(
    outcome: anyhow::Result<Report>,
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
    worker: &mut Running,
) -> anyhow::Result<()> {
    let interrupted = signals.stop().is_cancelled();
    if arguments.once || interrupted {
        return match outcome {
            Err(_) if interrupted && !arguments.once => Ok(()),
            Err(error) => Err(error),
            Ok(report) => report.verdict(),
        };
    }
    if let Err(error) = outcome?.verdict() {
        terminal.note(&crate::failure::line(&error));
    }
    terminal.note(&format!(
        "the worker goes on with {}; Ctrl-C stops it",
        worker.queues()
    ));
    tokio::select! {
        () = signals.stop().cancelled() => Ok(()),
        error = database.gone() => Err(error),
        error = worker.ended() => Err(error),
    }
}

async fn story(
    arguments: &Arguments,
    database: &Database,
    mut client: Client,
    terminal: &Terminal,
) -> anyhow::Result<Report> {
    let begun = Instant::now();
    let run = Run::open(
        &mut client,
        &arguments.folder,
        database.private_folder(),
        terminal,
    )
    .await?;
    announce(&run, terminal);
    let watching = database.address().connect().await?;
    let all_committed = AtomicBool::new(false);
    let commit = async {
        run.commit_all(&mut client).await?;
        all_committed.store(true, Ordering::Relaxed);
        Ok(())
    };
    let ((), figures) = tokio::try_join!(commit, watch(&run, &watching, terminal, &all_committed))?;
    let seconds = begun.elapsed().as_secs_f64();
    let proof = {
        let progress = terminal.progress("proving", Some(run.files), Unit::Files);
        verify::verify(&watching, run.id, &progress).await?
    };
    run.finish(&watching, proof.differing).await?;
    let mut report = Report::new(&run, figures, proof, seconds);
    let packages = &arguments.packages;
    report.packages = packages
        .run(database, &arguments.patience, terminal)
        .await?;
    terminal.result(&report, &report)?;
    Ok(report)
}

fn announce(run: &Run, terminal: &Terminal) {
    let (folder, files) = (run.folder.display(), HumanCount(run.files));
    if run.continued {
        let committed = HumanCount(run.committed_before);
        terminal.note(&format!(
            "continuing run {}: {committed} of {files} files below {folder} were committed",
            run.id
        ));
    } else {
        terminal.note(&format!("run {}: {files} files below {folder}", run.id));
    }
    if run.unreadable_folders > 0 {
        terminal.note(&format!(
            "{} folders could not be read and are left out",
            run.unreadable_folders
        ));
    }
}

/// Looks until every file is worked or given up, or until no job is left that could do it.
async fn watch(
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
        progress.say(figures.remark());
        if figures.worked + figures.dead >= run.files {
            return Ok(figures);
        }
        if all_committed.load(Ordering::Relaxed) && moved.elapsed() > QUIET {
            progress.say("waiting for the jobs of a worker that was killed");
            if run.open_jobs(client).await? == 0 {
                // The last job may have ended between the two questions.
                let figures = run.figures(client).await?;
                return Ok(figures);
            }
        }
        // A question that takes long is asked seldom: the answer belongs to the database, the
        // machine to the worker.
        tokio::time::sleep(LOOK_EVERY.max(asked.elapsed() * 10)).await;
    }
}

impl Figures {
    fn remark(&self) -> String {
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

/// What a run came to.
#[derive(Serialize)]
struct Report {
    run: i64,
    folder: String,
    seconds: f64,
    listed: u64,
    committed: u64,
    worked: u64,
    bytes: u64,
    retried: u64,
    dead: u64,
    unreadable: u64,
    same: u64,
    differing: u64,
    examples: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packages: Option<packages::Report>,
}

impl Report {
    fn new(run: &Run, figures: Figures, proof: Proof, seconds: f64) -> Self {
        Self {
            run: run.id,
            folder: run.folder.display().to_string(),
            seconds: (seconds * 1_000.0).round() / 1_000.0,
            listed: run.files,
            committed: figures.committed,
            worked: figures.worked,
            bytes: figures.bytes,
            retried: figures.retried,
            dead: figures.dead,
            unreadable: figures.unreadable,
            same: proof.same,
            differing: proof.differing,
            examples: proof.examples,
            packages: None,
        }
    }

    fn verdict(&self) -> anyhow::Result<()> {
        if self.differing > 0 {
            let first = self.examples.first().map_or("", String::as_str);
            bail!(
                "the table differs from sha256sum in {} of {} files, the first being {first}. Run 'posthaste up' again if they changed meanwhile.",
                self.differing,
                self.listed
            );
        }
        if self.dead > 0 {
            bail!(
                "{} jobs are dead. Their errors are in posthaste.dead.",
                self.dead
            );
        }
        self.packages
            .as_ref()
            .map_or(Ok(()), packages::Report::verdict)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = HumanCount;
        writeln!(
            f,
            "committed  {} rows, each with its job (run {}, {})",
            count(self.committed),
            self.run,
            self.folder
        )?;
        writeln!(
            f,
            "worked     {} files of {} bytes, in {:.1} s",
            count(self.worked),
            count(self.bytes),
            self.seconds
        )?;
        writeln!(f, "retried    {}", count(self.retried))?;
        writeln!(f, "dead       {}", count(self.dead))?;
        if self.unreadable > 0 {
            writeln!(
                f,
                "unreadable {} files, for sha256sum too",
                count(self.unreadable)
            )?;
        }
        write!(
            f,
            "proof      {} of {} listed files equal what sha256sum -z says",
            count(self.same),
            count(self.listed)
        )?;
        match self.differing {
            0 => write!(f, "; none differs"),
            differing => write!(f, "; {} DIFFER", count(differing)),
        }?;
        for example in &self.examples {
            write!(f, "\n           {example}")?;
        }
        match &self.packages {
            Some(packages) => write!(f, "\n{packages}"),
            None => Ok(()),
        }
    }
}
