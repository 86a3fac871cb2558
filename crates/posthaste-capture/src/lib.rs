//! Turns committed changes of Postgres into jobs of posthaste: rows of an outbox table, messages of
//! `pg_logical_emit_message`, and changes of any table. Each becomes one job, exactly once, in the
//! order of the commits.
//!
//! ```no_run
//! use posthaste_capture::{Capture, Options, OutboxColumns, Source, TableName, Until};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let database = posthaste::connect("postgres://app@db.example.org/app")?;
//! let capture = Capture {
//!     name: "orders".into(),
//!     queue: "orders".into(),
//!     direct: None,
//!     source: Source::Outbox {
//!         table: TableName::read("public.outbox")?,
//!         columns: OutboxColumns::default(),
//!     },
//!     slot: "posthaste_orders".into(),
//!     server: None,
//!     options: Options::default(),
//! };
//! capture.install(&database).await?;
//! let mut running = capture.start(database, Until::Stopped)?;
//! running.ended().await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

// A module imports only what stands in a group above its own.
mod error;
mod lsn;

mod pgoutput;
mod position;
mod snapshot;

mod change;
mod confirmation;
mod mark;
mod overview;
mod slot;

mod event;

mod source;

mod copying;

mod assemble;
mod batch;
mod feed;
mod handed_rows;
mod requirements;

mod chunk_jobs;

mod capture;
mod store;

mod copier;
mod direct;
mod opening;

mod operate;
mod session;
mod settings;

mod preview;
mod run;

pub use capture::{Capture, Direct, Options, State, Status, Until};
pub use error::Error;
pub use event::Event;
pub use lsn::Lsn;
pub use operate::{accept_gap, cancel_copy, list_captures, list_copies, list_gaps, pause, resume};
pub use overview::{CopyOverview, Gap, Installation, Overview, PauseOutcome};
pub use position::Position;
pub use run::Running;
pub use source::{CapturedTable, OutboxColumns, Source, TableName};
