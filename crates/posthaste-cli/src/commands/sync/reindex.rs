//! `posthaste sync reindex`: checks documents of a synced table again, with lower priority than
//! changes; shows the progress; pauses, resumes, cancels.

mod progress;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use posthaste::State;
use posthaste_observe::format::pluralize;
use posthaste_sync::{Reindex, ReindexPlan};
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use self::progress::{ReindexProgress, ReindexResult};
use crate::database::Database;
use crate::progress::Unit;
use crate::syncs::{self, SyncFile};
use crate::terminal::Terminal;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Rewrite documents of a synced table, by ID, by time or by any condition; new changes are written
/// first
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the table in the file
    #[arg(value_name = "TABLE")]
    table: String,

    #[command(flatten)]
    which: RowSelector,

    #[command(flatten)]
    instead: Instead,

    /// Rewrite only documents whose version differs from that of the row
    #[arg(long, conflicts_with = "instead")]
    only_different: bool,

    /// Tag of the jobs
    #[arg(long, value_name = "TAG", default_value = "reindex")]
    tag: String,

    /// Priority of the jobs; among re-indexes, lower values run first
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    priority: i32,

    /// Print the statement and the estimated number of documents instead of running it
    #[arg(long, conflicts_with = "instead")]
    dry_run: bool,

    /// Wait until the re-index has ended, and show its progress
    #[arg(long, conflicts_with_all = ["dry_run", "pause", "cancel"])]
    wait: bool,

    #[command(flatten)]
    config: SyncFile,
}

/// Selects rows whose documents are written again.
#[derive(clap::Args)]
#[group(id = "which", multiple = true, conflicts_with = "instead")]
struct RowSelector {
    /// Select all rows
    #[arg(long, conflicts_with_all = ["ids", "id", "condition", "column"])]
    all: bool,
    /// Select these IDs, including those whose rows were deleted
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        conflicts_with_all = ["condition", "column"]
    )]
    ids: Vec<String>,
    /// Select this ID, which may contain commas (repeatable)
    #[arg(long, value_name = "ID", conflicts_with_all = ["condition", "column"])]
    id: Vec<String>,
    /// Select rows for which this SQL condition is true, such as "t.owner = 7"
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// Select rows by the time in this column, with --since, --until or both
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Earliest time, inclusive, in a format of Postgres
    #[arg(long, value_name = "TIME", requires = "column")]
    since: Option<String>,
    /// Latest time, exclusive, in a format of Postgres
    #[arg(long, value_name = "TIME", requires = "column")]
    until: Option<String>,
}

/// Options about re-indexes that have begun.
#[derive(clap::Args)]
#[group(id = "instead", multiple = false)]
struct Instead {
    /// Show the progress of the table's re-indexes
    #[arg(long)]
    progress: bool,
    /// Pause the table's re-indexes; changes are still synced
    #[arg(long)]
    pause: bool,
    /// Resume the table's re-indexes
    #[arg(long)]
    resume: bool,
    /// Cancel the remaining jobs of the table's re-indexes
    #[arg(long)]
    cancel: bool,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let table = arguments.config.table(database, Some(&arguments.table))?;
    let client = database.address().connect().await?;
    syncs::require_installed(&client, &table).await?;
    let (name, queue) = (table.name(), syncs::reindex_queue(table.name()));
    let Instead {
        progress,
        pause,
        resume,
        cancel,
    } = arguments.instead;
    if pause || resume {
        return set_paused(&client, name, &queue, pause, terminal).await;
    }
    if cancel {
        let cancelled = cancel_all(&client, &queue).await?;
        let line = format!("{name}: {} cancelled", pluralize(cancelled, "job", "jobs"));
        return terminal.print_result(line, &CancelResult { cancelled });
    }
    if !progress && !arguments.wait && !arguments.which.has_choice() {
        bail!(
            "select documents: --all, --ids, --id, --where, or --column with --since or --until; \
             or --progress, --pause, --resume, --cancel"
        );
    }
    if arguments.which.has_choice() {
        let plan = PlannedReindex::make(&client, name, arguments).await?;
        if arguments.dry_run {
            return terminal.print_result(&plan, &plan);
        }
        let jobs = plan.begin(&client).await;
        let jobs = jobs.with_context(|| format!("the re-index of {name} did not start"))?;
        let what = match arguments.only_different {
            true => "will be compared and written again if the versions differ",
            false => "will be written again",
        };
        let line = format!(
            "{name}: {} {what}",
            pluralize(jobs, "document", "documents")
        );
        if !arguments.wait {
            return terminal.print_result(line, &ReindexBegun { jobs });
        }
        terminal.print_remark(&line);
        let ended = wait_until_done(&client, &queue, Some(&plan.0.mark), terminal).await?;
        let done = ReindexResult::new(name, jobs, &ended, arguments.only_different);
        return terminal.print_result(&done, &done);
    }
    let left = match arguments.wait {
        true => wait_until_done(&client, &queue, None, terminal).await?,
        false => UnfinishedJobs::count(&client, &queue, None).await?,
    };
    let counters = posthaste::Client::new(posthaste::Unnamed(&client))
        .counters()
        .await?;
    let far = ReindexProgress::new(&counters, name, &queue, left.open);
    terminal.print_result(&far, &far)
}

impl RowSelector {
    fn has_choice(&self) -> bool {
        let by_time = self.since.is_some() || self.until.is_some();
        self.all
            || !self.ids.is_empty()
            || !self.id.is_empty()
            || self.condition.is_some()
            || by_time
    }
}

/// The plan of a re-index.
struct PlannedReindex(ReindexPlan);

impl PlannedReindex {
    async fn make(client: &Client, name: &str, arguments: &Arguments) -> anyhow::Result<Self> {
        let which = &arguments.which;
        let ids: Vec<String> = which.ids.iter().chain(&which.id).cloned().collect();
        let reindex = Reindex {
            ids: Some(ids).filter(|ids| !ids.is_empty()),
            condition: which.condition.clone(),
            column: which.column.clone(),
            equals: None,
            since: which.since.clone(),
            until: which.until.clone(),
            tag: arguments.tag.clone(),
            priority: arguments.priority,
            force: !arguments.only_different,
        };
        Ok(Self(reindex.plan(client, name).await?))
    }

    async fn begin(&self, client: &Client) -> Result<u64, posthaste::Error> {
        self.0.begin(client).await
    }
}

impl Serialize for PlannedReindex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut plan = serializer.serialize_struct("Plan", 2)?;
        plan.serialize_field("statement", &self.0.statement)?;
        // The planner's estimate.
        plan.serialize_field("about", &self.0.about)?;
        plan.end()
    }
}

impl fmt::Display for PlannedReindex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReindexPlan {
            statement, about, ..
        } = &self.0;
        write!(f, "{statement};\n-- about {about} documents")
    }
}

#[derive(Serialize)]
struct ReindexBegun {
    jobs: u64,
}

#[derive(Serialize)]
struct CancelResult {
    cancelled: usize,
}

#[derive(Serialize)]
struct PauseResult {
    table: String,
    paused: bool,
}

async fn set_paused(
    client: &Client,
    name: &str,
    queue: &str,
    paused: bool,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut queues = posthaste::Client::new(client);
    match paused {
        true => queues.pause(queue).await?,
        false => queues.resume(queue).await?,
    };
    let line = match paused {
        true => format!("{name}: re-indexes are paused; changes are still synced"),
        false => format!("{name}: re-indexes continue"),
    };
    let table = name.to_owned();
    terminal.print_result(line, &PauseResult { table, paused })
}

/// Cancels the jobs of a queue that are not running, until there are none. Running jobs are done in
/// a moment, or wait again.
async fn cancel_all(client: &Client, queue: &str) -> anyhow::Result<usize> {
    let mut cancelled = 0;
    loop {
        let rows = client
            .query_typed(include_str!("reindex/waiting.sql"), &[(&queue, Type::TEXT)])
            .await?;
        let ids = rows.iter().map(|row| row.try_get(0));
        let ids: Result<Vec<i64>, _> = ids.collect();
        let ids = ids?;
        if ids.is_empty() {
            return Ok(cancelled);
        }
        let became = crate::commands::jobs::cancel_all(client, &ids).await?;
        let ended = became.iter();
        cancelled += ended
            .filter(|(_, state)| *state == State::Cancelled)
            .count();
    }
}

/// Jobs of a queue that are not completed. Counters would be cheaper but lag: here 0 means that
/// none is left.
struct UnfinishedJobs {
    open: i64,
    given_up: i64,
    cancelled: i64,
}

impl UnfinishedJobs {
    /// Counts the jobs of all re-indexes, or of the one with this mark.
    async fn count(client: &Client, queue: &str, mark: Option<&str>) -> anyhow::Result<Self> {
        let sql = include_str!("reindex/left.sql");
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&queue, Type::TEXT), (&mark, Type::TEXT)];
        let left = client.query_typed_one(sql, &values).await?;
        Ok(Self {
            open: left.try_get(0)?,
            given_up: left.try_get(1)?,
            cancelled: left.try_get(2)?,
        })
    }
}

async fn wait_until_done(
    client: &Client,
    queue: &str,
    mark: Option<&str>,
    terminal: &Terminal,
) -> anyhow::Result<UnfinishedJobs> {
    let mut progress = None;
    loop {
        let asked = Instant::now();
        let now = UnfinishedJobs::count(client, queue, mark).await?;
        let left = now.open.unsigned_abs();
        if left == 0 {
            return Ok(now);
        }
        let (total, bar) = progress
            .get_or_insert_with(|| (left, terminal.progress("indexing", Some(left), Unit::Jobs)));
        bar.set(total.saturating_sub(left));
        // The pause grows with the duration of a query.
        tokio::time::sleep(POLL_INTERVAL.max(asked.elapsed() * 10)).await;
    }
}
