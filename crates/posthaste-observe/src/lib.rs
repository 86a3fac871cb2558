//! One engine that observes a posthaste store: it reads a [`Snapshot`], evaluates it by
//! [`Thresholds`], and returns [`Finding`]s with stable ids. The console and the command line only
//! render them.
//!
//! ```no_run
//! use posthaste_observe::{Snapshot, Thresholds, findings};
//!
//! # async fn example(client: &tokio_postgres::Client) -> Result<(), posthaste_observe::Error> {
//! let snapshot = Snapshot::read(client).await?;
//! for finding in findings(&snapshot, &Thresholds::default()) {
//!     println!("{}: {} {}", finding.kind.id(), finding.summary, finding.remedy);
//! }
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

// Modules are in layers, the lowest first.
pub mod format;
pub mod redact;

mod error;
mod thresholds;

mod facts;
mod finding;
mod holders;
mod sums;

pub mod transactions;

mod snapshot;

mod alerts;
mod history;

mod checks;

mod store;

mod collector;
mod findings;

pub use alerts::{Alerts, is_alert};
pub use checks::{CaptureProblem, Checks, Rights, TableLock, UnsyncedTable};
pub use collector::{Collector, Source};
pub use error::Error;
pub use facts::{
    EndedTransaction, FailedPeriodicJob, FailingJobs, GivenUpJobs, QueueActivity, QueueSettings,
    Segments, Server, StoreState, SyncedTable, Worker,
};
pub use finding::{Finding, Kind, Level, group_by_kind};
pub use findings::{check_findings, findings};
pub use history::History;
pub use holders::{holder_detail, holder_name};
pub use snapshot::{Snapshot, failing_since, relay_name};
pub use sums::Sums;
pub use thresholds::Thresholds;
