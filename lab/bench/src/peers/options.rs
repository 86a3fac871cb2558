//! The command line of `peers`, and the sizes that follow from it.

use std::path::PathBuf;

use clap::Args;
use posthaste_testkit::PgVersion;

/// Options of a comparison.
#[derive(Debug, Args)]
pub(crate) struct PeersOptions {
    /// Only these, separated by commas, beside posthaste.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Rounds of each row.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Seconds that jobs are offered at a rate; four times as many under an open snapshot.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Small sizes and one round: shows that the comparison runs, measures nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The major version of Postgres, 15 to 18.
    #[arg(long, default_value = "15")]
    pub(crate) pg: PgVersion,
    /// Where the private server keeps its data; not a tmpfs.
    #[arg(long)]
    pub(crate) data_parent: Option<PathBuf>,
    /// The docs folder that receives the report.
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
