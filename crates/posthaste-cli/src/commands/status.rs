//! `posthaste status`: every queue with its jobs by state, every relay, capture and synced table;
//! once or periodically.

mod captures;
mod report;
mod routes;
pub(crate) mod tables;

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use deadpool_postgres::Client;
use posthaste::{Counter, Counters};
use posthaste_observe::format::age;
use posthaste_observe::{Snapshot, findings};
use tokio::time::{sleep, timeout};

use crate::cached_connection::{self, CachedConnection, READ_TIMEOUT};
use crate::database::Database;
use crate::failure;
use crate::options::parse_duration_between;
use crate::signals::Signals;
use crate::site;
use crate::terminal::{Terminal, escape_name};
use crate::thresholds;
use captures::CaptureRow;
use report::{Report, add_counter};
use routes::RouteRow;

/// Show queues with their jobs by state, relays, captures, synced tables and problems
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Columns by which to group jobs
    #[arg(long, value_enum, value_delimiter = ',', default_value = "queue")]
    by: Vec<GroupColumn>,
    /// Also show totals since the installation, such as completed and failed jobs
    #[arg(long)]
    totals: bool,
    /// Repeat at this interval until Ctrl-C; 2s if no interval is given
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        default_missing_value = "2s",
        value_parser = parse_duration_between(1, 86_400)
    )]
    watch: Option<Duration>,
}

impl Arguments {
    /// Whether it runs until it is stopped; being stopped is not a failure then.
    pub(crate) fn runs_until_stopped(&self) -> bool {
        self.watch.is_some()
    }
}

/// The columns by which jobs are grouped.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GroupColumn {
    Queue,
    Priority,
    Name,
    Tag,
}

impl GroupColumn {
    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Priority => "priority",
            Self::Name => "name",
            Self::Tag => "tag",
        }
    }

    fn value_of(self, counter: &Counter) -> String {
        match self {
            Self::Queue => counter.queue.clone(),
            Self::Priority => counter.priority.to_string(),
            Self::Name => counter.name.clone(),
            Self::Tag => counter.tag.clone(),
        }
    }
}

/// All states of the view `posthaste.job`, in the order of a job's life.
const STATE_COLUMNS: [&str; 11] = [
    "available",
    "blocked",
    "scheduled",
    "retrying",
    "running",
    "awaiting",
    "quarantined",
    "expired",
    "dead",
    "discarded",
    "cancelled",
];
const TOTAL_COLUMNS: [&str; 7] = [
    "completed_total",
    "failed_total",
    "retried_total",
    "expired_total",
    "dead_total",
    "discarded_total",
    "cancelled_total",
];

type JobFigures = BTreeMap<&'static str, i64>;

fn counter_figures(of: &Counter) -> [(&'static str, i64); 18] {
    [
        ("available", of.available),
        ("blocked", of.blocked),
        ("scheduled", of.scheduled),
        ("retrying", of.retrying),
        ("running", of.running),
        ("awaiting", of.awaiting),
        ("quarantined", of.quarantined),
        ("expired", of.expired),
        ("dead", of.dead),
        ("discarded", of.discarded),
        ("cancelled", of.cancelled),
        ("completed_total", of.completed_total),
        ("failed_total", of.failed_total),
        ("retried_total", of.retried_total),
        ("expired_total", of.expired_total),
        ("dead_total", of.dead_total),
        ("discarded_total", of.discarded_total),
        ("cancelled_total", of.cancelled_total),
    ]
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let Some(pause) = arguments.watch else {
        return show(arguments, database, &client, terminal).await;
    };
    let mut connection = CachedConnection::new(database.address());
    connection.put_back(client);
    while !terminal.is_unread() {
        let shown = async {
            let client = connection.take_or_connect().await?;
            cached_connection::read_bounded(&client, show(arguments, database, &client, terminal))
                .await?;
            connection.put_back(client);
            anyhow::Ok(())
        };
        let shown = tokio::select! {
            shown = timeout(READ_TIMEOUT, shown) => shown,
            () = signals.stop_token().cancelled() => return Ok(()),
        };
        if let Err(error) = shown.context("the database does not answer").flatten() {
            terminal.print_remark(&failure::error_line(&error));
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = signals.stop_token().cancelled() => return Ok(()),
        }
    }
    Ok(())
}

/// Printed below figures that are too low.
const UNCOUNTED_NOTE: &str =
    "many jobs are not counted yet: the numbers of waiting jobs are too low";

async fn show(
    arguments: &Arguments,
    database: &Database,
    client: &Client,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut snapshot = Snapshot::read(client).await?;
    site::record_refusal(database.address(), &mut snapshot.store.refused).await?;
    snapshot.read_syncs(client).await?;
    let thresholds = thresholds::read()?;
    let found = findings(&snapshot, &thresholds);
    let counters = &snapshot.counters;
    let relays = snapshot.relays.iter().cloned();
    let relays: Vec<RouteRow> = relays.map(|one| RouteRow::new(one, counters)).collect();
    let mut text = StatusTable::new(counters, &arguments.by, arguments.totals).to_string();
    if counters.is_partial {
        text = format!("{text}\n{UNCOUNTED_NOTE}");
    }
    if arguments.by.contains(&GroupColumn::Queue) {
        for queue in &counters.paused {
            text = format!("{text}\nqueue {} is paused", escape_name(queue));
        }
    }
    if !relays.is_empty() {
        text = format!("{text}\n\n{}", routes::RouteTable(&relays));
    }
    let captures: Vec<CaptureRow> = snapshot.captures.iter().map(CaptureRow::new).collect();
    if !captures.is_empty() {
        text = format!("{text}\n\n{}", captures::CaptureTable(&captures));
    }
    let synced: Vec<tables::SyncRow> = snapshot.syncs.iter().map(tables::SyncRow::new).collect();
    if !synced.is_empty() {
        text = format!("{text}\n\n{}", tables::SyncTable(&synced));
    }
    let urgent = thresholds::urgent_lines(&found);
    if arguments.by.contains(&GroupColumn::Queue) && !urgent.is_empty() {
        text = format!("{text}\n\n{}", urgent.join("\n"));
    }
    if arguments.watch.is_some() && std::io::stdout().is_terminal() {
        terminal.clear()?;
    }
    let unworked = snapshot.queues_without_worker(&thresholds);
    let report = Report::new(counters, &unworked, relays, captures, synced, found.clone());
    terminal.print_result(&text, &report)
}

/// Returns the longest wait of a next job among these queues and priorities.
fn longest_wait(counters: &Counters, among: impl Fn(&str, i32) -> bool) -> Option<f64> {
    let waits = counters.oldest.iter();
    waits
        .filter(|one| among(&one.queue, one.priority))
        .map(|one| one.seconds)
        .reduce(f64::max)
}

/// The table for people: it has only columns with values.
struct StatusTable {
    head: Vec<String>,
    keys: usize,
    lines: Vec<Vec<String>>,
}

impl StatusTable {
    fn new(counters: &Counters, by: &[GroupColumn], totals: bool) -> Self {
        let mut groups: BTreeMap<Vec<String>, (JobFigures, Option<f64>)> = BTreeMap::new();
        let waits = by
            .iter()
            .all(|by| matches!(by, GroupColumn::Queue | GroupColumn::Priority));
        for counter in &counters.jobs {
            let key: Vec<String> = by
                .iter()
                .map(|by| escape_name(&by.value_of(counter)))
                .collect();
            let alike = |queue: &str, priority: i32| {
                (!by.contains(&GroupColumn::Queue) || queue == counter.queue)
                    && (!by.contains(&GroupColumn::Priority) || priority == counter.priority)
            };
            let group = groups.entry(key).or_insert_with(|| {
                let wait = waits.then(|| longest_wait(counters, alike)).flatten();
                (JobFigures::new(), wait)
            });
            add_counter(&mut group.0, counter);
        }
        let shown: Vec<&str> = STATE_COLUMNS
            .into_iter()
            .chain(TOTAL_COLUMNS.into_iter().filter(|_| totals))
            .filter(|what| groups.values().any(|(jobs, _)| jobs.get(what) > Some(&0)))
            .collect();
        groups.retain(|_, (jobs, _)| shown.iter().any(|what| jobs.get(what) > Some(&0)));
        let waits = groups.values().any(|(_, wait)| wait.is_some());
        let head = by.iter().map(|by| by.name()).chain(shown.iter().copied());
        let lines = groups.iter().map(|(key, (jobs, wait))| {
            let mut line = key.clone();
            line.extend(
                shown
                    .iter()
                    .map(|what| jobs.get(what).unwrap_or(&0).to_string()),
            );
            line.extend(waits.then(|| wait.map_or_else(|| "-".into(), age)));
            line
        });
        Self {
            head: head
                .chain(waits.then_some("oldest"))
                .map(Into::into)
                .collect(),
            keys: by.len(),
            lines: lines.collect(),
        }
    }
}

/// Replaces control characters in the output of another program, so that it fits in one line.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}

impl fmt::Display for StatusTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "no jobs: all enqueued jobs are completed");
        }
        let widths: Vec<usize> = (0..self.head.len())
            .map(|at| {
                let cells = self.lines.iter().filter_map(|line| line.get(at));
                let widest = cells
                    .chain([&self.head[at]])
                    .map(|cell| cell.chars().count());
                widest
                    .max()
                    .unwrap_or(0)
                    .max(if at < self.keys { 5 } else { 10 })
            })
            .collect();
        for (n, line) in std::iter::once(&self.head).chain(&self.lines).enumerate() {
            let cells = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(at, (cell, &wide))| {
                    if at < self.keys {
                        format!("{cell:wide$}")
                    } else {
                        format!("{cell:>wide$}")
                    }
                });
            let cells: Vec<String> = cells.collect();
            write!(f, "{}{}", if n > 0 { "\n" } else { "" }, cells.join("  "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_without_jobs_is_one_line() {
        let table = StatusTable::new(&Counters::default(), &[GroupColumn::Queue], true);
        assert_eq!(
            table.to_string(),
            "no jobs: all enqueued jobs are completed"
        );
    }
}
