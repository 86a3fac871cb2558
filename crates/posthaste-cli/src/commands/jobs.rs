//! `posthaste jobs`: enqueue, list, retry, cancel and redrive jobs.

mod enqueue;
mod result;
mod show;

pub(super) use result::cancel_all;

use std::collections::HashSet;
use std::fmt;

use anyhow::ensure;
use clap::Subcommand;
use jiff::Timestamp;
use posthaste::{Client, Filter, FoundJob, JobId, ListedJob, State};
use posthaste_observe::format::pluralize;
use posthaste_observe::redact::error_text;
use serde::Serialize;

use crate::database::Database;
use crate::failure::{self, CommandExit};
use crate::signals::Signals;
use crate::terminal::{Terminal, escape_name};

/// Enqueue, list, show, retry, cancel and redrive jobs
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// Whether the command must end its transaction gracefully and print where to continue.
    pub(crate) fn enqueues(&self) -> bool {
        matches!(self.command, Command::Enqueue(_))
    }
}

#[derive(Subcommand)]
enum Command {
    Enqueue(enqueue::Arguments),
    /// List jobs that are not completed, newest first
    List {
        #[command(flatten)]
        which: JobSelector,
        /// Maximum number of jobs to show
        #[arg(
            long,
            value_name = "N",
            default_value_t = 50,
            value_parser = clap::value_parser!(u32).range(1..=MAX_LIMIT)
        )]
        limit: u32,
    },
    /// Show one job, completed or not, with its arguments and failed attempts
    Show {
        /// ID of the job
        id: i64,
    },
    /// Run scheduled jobs, and jobs that wait for their next attempt, now
    Retry(JobSelection),
    /// Cancel jobs: waiting jobs never run, running jobs are asked to stop
    Cancel(JobSelection),
    /// Run dead, discarded, expired and cancelled jobs again
    Redrive(JobSelection),
}

/// The largest limit that the database accepts.
const MAX_LIMIT: i64 = i32::MAX as i64;

/// Some of the jobs that a command is about.
#[derive(clap::Args)]
struct JobSelection {
    /// IDs of jobs (default: all jobs that match the options)
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    #[command(flatten)]
    which: JobSelector,
    /// Select all jobs
    #[arg(long)]
    all: bool,
    /// Maximum number of jobs, oldest first (default: 1000, or all of the given IDs)
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MAX_LIMIT)
    )]
    limit: Option<u32>,
}

impl JobSelection {
    /// Fails if no job is selected: a forgotten argument must not change all jobs.
    fn check(&self) -> anyhow::Result<()> {
        if self.all || !self.ids.is_empty() || !self.which.has_no_condition() {
            return Ok(());
        }
        let line = "give job IDs, or select jobs with --queue, --name, --tag, --state or --error, \
                    or all with --all.";
        let (code, line) = (failure::USAGE_EXIT_CODE, line.to_owned());
        Err(CommandExit { code, line }.into())
    }

    /// Returns the limit; the default is the number of named jobs, or 1,000 if none is named.
    fn limit(&self) -> u32 {
        let named = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let usual = if named == 0 { 1_000 } else { named };
        self.limit.unwrap_or(usual)
    }

    fn filter(&self) -> Filter {
        let filter = self.which.filter().limit(self.limit());
        match self.ids.is_empty() {
            true => filter,
            false => filter.ids(self.ids.iter().copied().map(JobId)),
        }
    }
}

#[derive(clap::Args)]
struct JobSelector {
    /// Select only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Select only jobs with this name
    #[arg(long)]
    name: Option<String>,
    /// Select only jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Select only jobs in this state
    #[arg(long)]
    state: Option<State>,
    /// Select only jobs whose last error matches this pattern; % matches any text
    #[arg(long, value_name = "PATTERN")]
    error: Option<String>,
}

impl JobSelector {
    /// Whether no condition is given.
    fn has_no_condition(&self) -> bool {
        let texts = [&self.queue, &self.name, &self.tag, &self.error];
        texts.iter().all(|text| text.is_none()) && self.state.is_none()
    }

    fn filter(&self) -> Filter {
        let mut filter = Filter::new();
        if let Some(queue) = &self.queue {
            filter = filter.queue(queue);
        }
        if let Some(name) = &self.name {
            filter = filter.name(name);
        }
        if let Some(tag) = &self.tag {
            filter = filter.tag(tag);
        }
        if let Some(state) = self.state {
            filter = filter.state(state);
        }
        if let Some(pattern) = &self.error {
            filter = filter.error_like(pattern);
        }
        filter
    }
}

impl Arguments {
    /// Fails if a command that changes jobs selects none.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Retry(chosen) | Command::Cancel(chosen) | Command::Redrive(chosen) => {
                chosen.check()
            }
            Command::Enqueue(_) | Command::List { .. } | Command::Show { .. } => Ok(()),
        }
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    if let Command::Enqueue(arguments) = &arguments.command {
        return enqueue::run(arguments, database, terminal, signals).await;
    }
    let client = database.address().connect().await?;
    match &arguments.command {
        // `enqueue` ran before.
        Command::Enqueue(_) => Ok(()),
        Command::List { which, limit } => list(&client, terminal, which, *limit).await,
        Command::Show { id } => show::show(&client, terminal, *id).await,
        Command::Retry(chosen) => result::retry(&client, terminal, chosen).await,
        Command::Cancel(chosen) => result::cancel(&client, terminal, chosen).await,
        Command::Redrive(chosen) => redrive(&client, terminal, chosen).await,
    }
}

/// A row of a list of jobs.
#[derive(Serialize)]
struct JobRow {
    id: i64,
    name: String,
    queue: String,
    priority: i32,
    state: String,
    /// The number of counted attempts.
    attempts: i32,
    max_attempts: Option<i32>,
    scheduled_at: Timestamp,
    tag: String,
    last_error: Option<String>,
}

impl JobRow {
    fn new(job: ListedJob) -> Self {
        Self {
            id: job.id.0,
            name: job.name,
            queue: job.queue,
            priority: job.priority,
            state: job.state.to_string(),
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            scheduled_at: job.scheduled_at,
            tag: job.tag,
            last_error: job.last_error.as_deref().map(error_text),
        }
    }

    fn from_found(job: &FoundJob) -> Self {
        Self {
            id: job.id.0,
            name: job.name.clone(),
            queue: job.queue.clone(),
            priority: job.priority,
            state: job.state.to_string(),
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            scheduled_at: job.scheduled_at,
            tag: job.tag.clone(),
            last_error: job.last_error.as_deref().map(error_text),
        }
    }
}

#[derive(Serialize)]
#[serde(transparent)]
struct JobList(Vec<JobRow>);

impl fmt::Display for JobList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "no jobs match");
        }
        let wide = |of: fn(&JobRow) -> &str, least: usize| {
            let widths = self
                .0
                .iter()
                .map(|line| escape_name(of(line)).chars().count());
            widths.max().unwrap_or(0).clamp(least, 40)
        };
        let (name, queue) = (wide(|line| &line.name, 4), wide(|line| &line.queue, 5));
        write!(
            f,
            "{:>12}  {:name$}  {:queue$}  {:10}  {:>8}  error",
            "id", "name", "queue", "state", "attempts"
        )?;
        for line in &self.0 {
            let error = line.last_error.as_deref().unwrap_or_default();
            let error: String = escape_name(error).chars().take(80).collect();
            let (job, of_queue) = (escape_name(&line.name), escape_name(&line.queue));
            write!(
                f,
                "\n{:>12}  {job:name$}  {of_queue:queue$}  {:10}  {:>8}  {error}",
                line.id, line.state, line.attempts
            )?;
        }
        Ok(())
    }
}

async fn list(
    client: &tokio_postgres::Client,
    terminal: &Terminal,
    which: &JobSelector,
    limit: u32,
) -> anyhow::Result<()> {
    let filter = which.filter().limit(limit);
    let jobs = Client::new(client).list(&filter).await?;
    let list = JobList(jobs.into_iter().map(JobRow::new).collect());
    terminal.print_result(&list, &list)
}

#[derive(Serialize)]
struct RedriveResult {
    redriven: usize,
}

impl fmt::Display for RedriveResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.redriven {
            0 => write!(f, "no ended job matches"),
            jobs => write!(f, "{} redriven", pluralize(jobs, "job", "jobs")),
        }
    }
}

async fn redrive(
    client: &tokio_postgres::Client,
    terminal: &Terminal,
    chosen: &JobSelection,
) -> anyhow::Result<()> {
    let sent = Client::new(client).redrive_where(&chosen.filter()).await?;
    let redriven = RedriveResult {
        redriven: sent.len(),
    };
    terminal.print_result(&redriven, &redriven)?;
    let sent: HashSet<i64> = sent.into_iter().map(|id| id.0).collect();
    let left = chosen.ids.iter().copied();
    let left: Vec<i64> = left.filter(|id| !sent.contains(id)).collect();
    ensure!(
        left.is_empty(),
        "not redriven: {}. A job can be redriven while it is kept, if it matches the options and \
         no other job holds its unique key.",
        job_ids_text(&left)
    );
    Ok(())
}

/// Formats the first of these jobs and the number of others.
fn job_ids_text(ids: &[i64]) -> String {
    let shown: Vec<String> = ids.iter().take(10).map(ToString::to_string).collect();
    let (jobs, shown_ids) = (
        if ids.len() == 1 { "job" } else { "jobs" },
        shown.join(", "),
    );
    match ids.len() - shown.len() {
        0 => format!("{jobs} {shown_ids}"),
        more => format!("{jobs} {shown_ids} and {more} more"),
    }
}
