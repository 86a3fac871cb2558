//! `posthaste sync run`: keeps indexes equal to the tables of posthaste.toml until it is stopped.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use posthaste_observe::format::pluralize;
use posthaste_sync::SyncStatus;
use serde::Serialize;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::database::Database;
use crate::failure::CommandExit;
use crate::observe::ListenOptions;
use crate::signals::Signals;
use crate::site;
use crate::syncs::{self, StartedSync, SyncFile};
use crate::terminal::Terminal;
use crate::worker::{self, Settings, StopGrace};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The poll interval with --once: written documents must be visible in the index soon, not after a
/// minute.
const ONCE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The exit code of --once if documents failed.
const FAILED_EXIT_CODE: u8 = 3;

/// Keep search indexes in sync with their tables until stopped
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Tables to sync (default: all in the file)
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,

    #[command(flatten)]
    config: SyncFile,

    /// Exit when everything that is due now is in the index and was read back from it; exit code 3
    /// if documents could not be built or were rejected
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    patience: StopGrace,

    #[command(flatten)]
    listen: ListenOptions,
}

impl Arguments {
    pub(super) fn is_long_running(&self) -> bool {
        !self.once
    }
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let tables = syncs::select_tables(arguments.config.tables(database)?, &arguments.tables)?;
    let client = database.address().connect().await?;
    if arguments.once {
        site::require_adopted(database.address()).await?;
    }
    let period = arguments.once.then_some(ONCE_POLL_INTERVAL);
    let syncs = syncs::start(tables, database.address(), period).await?;
    let settings = Settings {
        syncs: syncs.iter().flat_map(|one| one.syncs.clone()).collect(),
        served: arguments.listen.serve(None, terminal).await?,
        ..Settings::new(arguments.patience)
    };
    let worker = worker::start(database.address(), settings)
        .await
        .context("the sync did not start")?;
    for one in &syncs {
        one.print_started(terminal)?;
    }
    terminal.report_event("working", "Ctrl-C stops", &worker.queues_json())?;
    let empty = async {
        match arguments.once {
            true => wait_until_visible(&client, &syncs).await,
            false => std::future::pending().await,
        }
    };
    worker.run_until(empty, database, signals).await?;
    let tables: Vec<SyncTotals> = syncs.iter().map(SyncTotals::new).collect();
    if arguments.once || !terminal.is_json() {
        terminal.print_results(&tables, "nothing to sync")?;
    }
    if arguments.once {
        signals.fail_if_signalled()?;
    }
    match arguments.once {
        true => require_all_indexed(&tables),
        false => terminal.print_event_line("synced", &Synced { tables }),
    }
}

/// The totals until the sync was stopped.
#[derive(Serialize)]
struct Synced {
    tables: Vec<SyncTotals>,
}

/// Completes when the jobs of the beginning are done, except those of documents that cannot be
/// built or are rejected: these are retried with growing delays.
pub(in crate::commands) async fn wait_until_visible(
    client: &Client,
    syncs: &[StartedSync],
) -> anyhow::Result<()> {
    let now = client.query_typed_one(include_str!("now.sql"), &[]).await?;
    let now: Timestamp = now.try_get(0)?;
    let queues = syncs.iter().flat_map(|one| &one.syncs);
    let queues: Vec<&str> = queues.map(|(queue, _)| &**queue).collect();
    loop {
        let asked = Instant::now();
        let left = client
            .query_typed_one(
                include_str!("left.sql"),
                &[(&queues, Type::TEXT_ARRAY), (&now, Type::TIMESTAMPTZ)],
            )
            .await?;
        if left.try_get::<_, i64>(0)? == 0 {
            return Ok(());
        }
        // The pause grows with the duration of a query.
        tokio::time::sleep(POLL_INTERVAL.max(asked.elapsed() * 5)).await;
    }
}

/// Fails with exit code 3 if documents are missing in the index.
fn require_all_indexed(report: &[SyncTotals]) -> anyhow::Result<()> {
    let failed: Vec<&str> = report
        .iter()
        .filter(|one| one.failed + one.rejected > 0)
        .map(|one| &*one.table)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    let line = format!(
        "{}: documents could not be built or were rejected; their jobs are retried with growing \
         delays. 'posthaste jobs list' shows why.",
        failed.join(", ")
    );
    let code = FAILED_EXIT_CODE;
    Err(CommandExit { code, line }.into())
}

/// The totals of a table.
#[derive(Serialize)]
struct SyncTotals {
    table: String,
    done: u64,
    written: u64,
    failed: u64,
    /// Rejected permanently: the index accepts no documents with these ids.
    rejected: u64,
    rescheduled: u64,
    last_error: Option<String>,
    counts: Vec<TagCount>,
}

/// The number of jobs of a tag with the same result for the same reason.
#[derive(Serialize)]
struct TagCount {
    tag: String,
    what: String,
    reason: String,
    jobs: u64,
}

impl SyncTotals {
    fn new(one: &StartedSync) -> Self {
        let statuses = one.syncs.each_ref().map(|(_, sync)| sync.status());
        let mut counts = BTreeMap::<_, u64>::new();
        for count in statuses.iter().flat_map(SyncStatus::counts) {
            *counts
                .entry((count.tag, count.what, count.reason))
                .or_default() += count.jobs;
        }
        let counts = counts
            .into_iter()
            .map(|((tag, what, reason), jobs)| TagCount {
                tag: tag.to_owned(),
                what: what.to_owned(),
                reason: reason.to_owned(),
                jobs,
            });
        let counts = counts.collect();
        let total = |what: &str| statuses.iter().map(|status| status.total(what)).sum();
        let mut errors = statuses
            .iter()
            .filter_map(|status| status.last_error.clone());
        Self {
            table: one.name.clone(),
            done: total("done"),
            written: total("written"),
            failed: total("failed"),
            rejected: total("rejected"),
            rescheduled: total("rescheduled"),
            last_error: errors.next_back(),
            counts,
        }
    }
}

impl fmt::Display for SyncTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (done, written) = (
            pluralize(self.done, "job", "jobs"),
            pluralize(self.written, "write", "writes"),
        );
        write!(f, "{}: {done} completed, {written}", self.table)?;
        if self.failed > 0 {
            let failed = pluralize(self.failed, "failure", "failures");
            write!(f, ", {failed}")?;
        }
        if self.rejected > 0 {
            write!(f, ", {} rejected permanently", self.rejected)?;
        }
        match &self.last_error {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}
