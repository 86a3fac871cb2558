//! The command line of `capture`, and the sizes that follow from it.

use std::path::PathBuf;

use clap::Args;
use posthaste_testkit::PgVersion;

use crate::options::RunOptions;

const ROUNDS: u32 = 3;
const EVENTS: u64 = 80_000;
const SECONDS: u64 = 20;
const LARGE_MB: u64 = 10_000;
const DEAD_SECONDS: u64 = 600;
const COPY_ROWS: u64 = 10_000_000;

/// Options of the measurements of captures.
#[derive(Debug, Args)]
pub(crate) struct CaptureOptions {
    /// Only these rows, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(super::ROWS)
    )]
    pub(crate) only: Vec<String>,
    /// Rounds of the backlog and of the steady rate
    #[arg(long, default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Number of transactions in the backlog
    #[arg(long, default_value_t = EVENTS)]
    pub(crate) events: u64,
    /// Seconds of the steady rate, and with an open snapshot
    #[arg(long, default_value_t = SECONDS)]
    pub(crate) seconds: u64,
    /// Size of the large transaction in megabytes
    #[arg(long, default_value_t = LARGE_MB)]
    pub(crate) large_mb: u64,
    /// Seconds for which the destination is down
    #[arg(long, default_value_t = DEAD_SECONDS)]
    pub(crate) dead_seconds: u64,
    /// Number of copied rows
    #[arg(long, default_value_t = COPY_ROWS)]
    pub(crate) copy_rows: u64,
    /// Use small sizes and one round to test the measurements, without valid results
    #[arg(long)]
    pub(crate) quick: bool,
    /// Major version of Postgres, 15 to 18
    #[arg(long, default_value = "15")]
    pub(crate) pg: PgVersion,
    /// Directory for the data of the private server; not on a tmpfs
    #[arg(long)]
    pub(crate) data_parent: Option<PathBuf>,
    /// Folder docs, to which the report is written
    #[arg(long, default_value = "docs")]
    pub(crate) docs: PathBuf,
}

impl CaptureOptions {
    /// The options for a run that measures everything.
    pub(crate) fn beside(run: &RunOptions) -> Self {
        Self {
            only: Vec::new(),
            rounds: run.rounds.min(ROUNDS),
            events: EVENTS,
            seconds: SECONDS,
            large_mb: LARGE_MB,
            dead_seconds: DEAD_SECONDS,
            copy_rows: COPY_ROWS,
            quick: run.quick,
            pg: run.pg,
            data_parent: run.data_parent.clone(),
            docs: run.docs.clone(),
        }
    }
}

/// Sizes of all rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) rounds: u32,
    pub(crate) events: u64,
    pub(crate) seconds: u64,
    pub(crate) large_mb: u64,
    pub(crate) dead_seconds: u64,
    pub(crate) copy_rows: u64,
}

impl Sizes {
    /// The sizes of the options, or of a smoke run.
    pub(crate) fn from_options(options: &CaptureOptions) -> Self {
        match options.quick {
            true => Self {
                rounds: 1,
                events: 4_000,
                seconds: 3,
                large_mb: 300,
                dead_seconds: 20,
                copy_rows: 100_000,
            },
            false => Self {
                rounds: options.rounds,
                events: options.events,
                seconds: options.seconds,
                large_mb: options.large_mb,
                dead_seconds: options.dead_seconds,
                copy_rows: options.copy_rows,
            },
        }
    }
}
