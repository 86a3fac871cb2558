//! The command line, and the sizes that follow from it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use posthaste_testkit::PgVersion;

use crate::capture::CaptureOptions;
use crate::degrade::DegradeOptions;
use crate::peers::PeersOptions;
use crate::scale::{FleetWorkerOptions, ScaleOptions};

/// Benchmark posthaste against the designs of other Postgres queues
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// Other commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate docs/why/benchmarks.md from the reports in docs/benchmarks
    Report(ReportOptions),
    /// Measure how queues degrade while a transaction holds back vacuum, and write a report
    Degrade(DegradeOptions),
    /// Like degrade; exit code 0: all bounds were kept; 1: one was broken; 2: the run cannot be
    /// judged
    Gate(DegradeOptions),
    /// Measure throughput by the number of worker processes
    Scale(ScaleOptions),
    /// Run and count jobs, for `scale`
    #[command(hide = true)]
    FleetWorker(FleetWorkerOptions),
    /// Compare posthaste with other Postgres queues, each with its library
    Peers(PeersOptions),
    /// Compare captures of changes with Debezium's engine
    Capture(CaptureOptions),
    /// Run a backlog in a separate process and print memory samples as JSON, for the bar `memory`
    #[command(hide = true)]
    WorkBacklog(BacklogOptions),
    /// Audit rows and documents in a separate process and print memory samples as JSON, for the bar
    /// `audit`
    #[command(hide = true)]
    AuditRows(AuditOptions),
}

/// Options of a measuring run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Only these bars, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(crate::bars::ORDER)
    )]
    pub(crate) only: Vec<String>,
    /// Number of clean rounds per bar
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Use small sizes and one round to test the bench, without valid results
    #[arg(long)]
    pub(crate) quick: bool,
    /// Duration of the bar `paused` in seconds
    #[arg(long)]
    pub(crate) paused_seconds: Option<u64>,
    /// Seconds of steady load in each run of the bar `churn`
    #[arg(long)]
    pub(crate) churn_seconds: Option<u64>,
    /// Number of rows in the bar `bulk`
    #[arg(long)]
    pub(crate) bulk_rows: Option<u64>,
    /// Number of jobs that are due at the same time in the bar `crowd`
    #[arg(long)]
    pub(crate) crowd_jobs: Option<u64>,
    /// Number of jobs in the bar `relay`
    #[arg(long)]
    pub(crate) relay_jobs: Option<u64>,
    /// Number of rows in the bar `sync`
    #[arg(long)]
    pub(crate) sync_rows: Option<u64>,
    /// Number of rows in the bar `audit`
    #[arg(long)]
    pub(crate) audit_rows: Option<u64>,
    /// Number of waiting jobs, and of completed jobs, in the bar `pages`
    #[arg(long)]
    pub(crate) pages_jobs: Option<u64>,
    /// Major version of Postgres, 15 to 18; `POSTHASTE_PG15_BIN` and the like set the folder of its
    /// programs
    #[arg(long, default_value = "15")]
    pub(crate) pg: PgVersion,
    /// Directory for the data of the private server; not on a tmpfs
    #[arg(long)]
    pub(crate) data_parent: Option<PathBuf>,
    /// Folder docs, to which the report is written
    #[arg(long, default_value = "docs")]
    pub(crate) docs: PathBuf,
}

/// Options of the page.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// Folder docs, which contains the reports
    #[arg(long, default_value = "docs")]
    pub(crate) docs: PathBuf,
}

/// Options of the worker process.
#[derive(Debug, Args)]
pub(crate) struct BacklogOptions {
    /// URL of the database
    #[arg(long, env = "POSTHASTE_BENCH_URL", hide_env_values = true)]
    pub(crate) url: String,
    /// Number of jobs to run before exiting
    #[arg(long)]
    pub(crate) jobs: u64,
    /// Number of jobs between two memory samples
    #[arg(long)]
    pub(crate) every: u64,
    /// URL of the webhook to which jobs are relayed (default: a handler runs them)
    #[arg(long)]
    pub(crate) hook: Option<String>,
}

/// Options of the process that audits.
#[derive(Debug, Args)]
pub(crate) struct AuditOptions {
    /// URL of the database
    #[arg(long, env = "POSTHASTE_BENCH_URL", hide_env_values = true)]
    pub(crate) url: String,
    /// Number of rows and of documents
    #[arg(long)]
    pub(crate) rows: u64,
}

/// Sizes and durations of all bars.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    pub(crate) drain_jobs: u64,
    pub(crate) spent_jobs: u64,
    pub(crate) churn_seconds: u64,
    pub(crate) churn_rate: u64,
    pub(crate) paused_jobs: u64,
    pub(crate) paused_seconds: u64,
    pub(crate) crowd_jobs: u64,
    pub(crate) enqueue_seconds: u64,
    pub(crate) bulk_rows: u64,
    pub(crate) latency_seconds: u64,
    pub(crate) idle_seconds: u64,
    pub(crate) wal_jobs: u64,
    pub(crate) memory_jobs: u64,
    pub(crate) counters_jobs: u64,
    pub(crate) relay_jobs: u64,
    pub(crate) hook_jobs: u64,
    pub(crate) transfers: usize,
    pub(crate) sync_rows: u64,
    pub(crate) audit_rows: u64,
    pub(crate) pages_jobs: u64,
}

impl Plan {
    /// The sizes of these options.
    pub(crate) fn from_options(options: &RunOptions) -> Self {
        let mut plan = if options.quick {
            Self::smoke()
        } else {
            Self::full(options.rounds)
        };
        plan.paused_seconds = options.paused_seconds.unwrap_or(plan.paused_seconds);
        plan.churn_seconds = options.churn_seconds.unwrap_or(plan.churn_seconds);
        plan.bulk_rows = options.bulk_rows.unwrap_or(plan.bulk_rows);
        plan.relay_jobs = options.relay_jobs.unwrap_or(plan.relay_jobs);
        plan.sync_rows = options.sync_rows.unwrap_or(plan.sync_rows);
        plan.audit_rows = options.audit_rows.unwrap_or(plan.audit_rows);
        plan.pages_jobs = options.pages_jobs.unwrap_or(plan.pages_jobs);
        plan.crowd_jobs = options.crowd_jobs.unwrap_or(plan.crowd_jobs);
        plan
    }

    fn full(rounds: u32) -> Self {
        Self {
            quick: false,
            rounds,
            drain_jobs: 300_000,
            spent_jobs: 500_000,
            // Long enough for segments to fill up and be rotated under the load itself.
            churn_seconds: 90,
            churn_rate: 2_000,
            paused_jobs: 100_000,
            paused_seconds: 600,
            crowd_jobs: 10_000_000,
            enqueue_seconds: 8,
            bulk_rows: 10_000_000,
            latency_seconds: 20,
            idle_seconds: 20,
            wal_jobs: 100_000,
            memory_jobs: 1_000_000,
            counters_jobs: 10_000_000,
            relay_jobs: 200_000,
            hook_jobs: 100_000,
            transfers: 4_000,
            sync_rows: 200_000,
            audit_rows: 10_000_000,
            pages_jobs: 10_000_000,
        }
    }

    fn smoke() -> Self {
        Self {
            quick: true,
            rounds: 1,
            drain_jobs: 20_000,
            spent_jobs: 30_000,
            churn_seconds: 6,
            churn_rate: 2_000,
            paused_jobs: 5_000,
            paused_seconds: 10,
            crowd_jobs: 100_000,
            enqueue_seconds: 1,
            bulk_rows: 100_000,
            latency_seconds: 2,
            idle_seconds: 2,
            wal_jobs: 10_000,
            memory_jobs: 50_000,
            counters_jobs: 50_000,
            relay_jobs: 10_000,
            hook_jobs: 5_000,
            transfers: 300,
            sync_rows: 10_000,
            audit_rows: 100_000,
            pages_jobs: 50_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{CommandLine, Plan};

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_smoke_run_is_marked_and_a_full_run_has_the_sizes_of_the_bars() -> anyhow::Result<()> {
        let quick = Plan::from_options(&CommandLine::try_parse_from(["bench", "--quick"])?.run);
        let full = Plan::from_options(&CommandLine::try_parse_from(["bench"])?.run);
        assert!(quick.quick && !full.quick);
        assert_eq!(
            (
                full.rounds,
                full.drain_jobs,
                full.bulk_rows,
                full.crowd_jobs
            ),
            (5, 300_000, 10_000_000, 10_000_000)
        );
        Ok(())
    }

    #[test]
    fn unknown_bars_are_refused() {
        assert!(CommandLine::try_parse_from(["bench", "--only", "drain,nothing"]).is_err());
    }
}
