//! The command line of `peers`, and the sizes that follow from it.

use std::path::PathBuf;

use clap::Args;
use posthaste_testkit::PgVersion;

/// Options of a comparison.
#[derive(Debug, Args)]
pub(crate) struct PeersOptions {
    /// Only these queues and posthaste, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Number of rounds for each row
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds for which jobs are enqueued at a rate; four times as long with an open snapshot
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Use small sizes and one round to test the comparison, without valid results
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

/// Sizes of all rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizes {
    pub(crate) seconds: u64,
    pub(crate) rows: u64,
    pub(crate) backlog: u64,
    pub(crate) pinned_seconds: u64,
}

impl Sizes {
    /// The sizes of a full comparison, or of a smoke run.
    pub(crate) fn from_options(options: &PeersOptions) -> Self {
        if options.quick {
            Self {
                seconds: 2,
                rows: 1_000,
                backlog: 1_000,
                pinned_seconds: 3,
            }
        } else {
            Self {
                seconds: options.seconds,
                rows: 100_000,
                backlog: 100_000,
                pinned_seconds: options.seconds * 4,
            }
        }
    }
}
