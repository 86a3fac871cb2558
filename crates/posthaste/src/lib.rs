//! A Postgres job queue and transactional outbox.
//!
//! A program commits a job in the same transaction as its data; from then on posthaste guarantees
//! that the work happens: never before the commit, never for a rolled-back transaction, never lost,
//! and not slowed down by long transactions of other clients.
//!
//! A job passes through the modules in this order: [`enqueue()`] writes it, the store keeps it, a
//! claim assigns it to a worker, a handler runs it, and the acknowledgement closes it.
//!
//! ```no_run
//! use posthaste::{Context, JobArgs, Worker};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Welcome {
//!     to: String,
//! }
//!
//! impl JobArgs for Welcome {
//!     const NAME: &'static str = "mail.welcome";
//! }
//!
//! async fn welcome(_context: Context, mail: Welcome) -> anyhow::Result<()> {
//!     println!("welcome, {}", mail.to);
//!     Ok(())
//! }
//!
//! # async fn example(pool: deadpool_postgres::Pool) -> anyhow::Result<()> {
//! let mut client = pool.get().await?;
//! let tx = client.transaction().await?;
//! tx.execute("INSERT INTO account (name) VALUES ($1)", &[&"Ada"]).await?;
//! posthaste::enqueue(&tx, Welcome { to: "Ada".into() }).await?;
//! tx.commit().await?; // both or neither
//!
//! let worker = Worker::builder(pool).queue("default", 16).job(welcome).start().await?;
//! worker.run_until_signal().await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

// A module imports only from the groups above its own.
mod counters;
mod error;
mod json_text;
mod log_limit;
pub mod settings;

mod executor;
mod job;
mod shutdown;

mod enqueue;
mod history;
mod periodic;
mod retry;

mod config;
mod handler;
mod store;

mod client;
mod database;
mod identity;
pub mod metrics;

mod stats;

pub mod consumer;

#[cfg(feature = "http")]
mod http;
mod parts;

mod acknowledge;
mod cancel;
mod claim;
mod heartbeat;
mod maintenance;
mod notifier;

mod engine;

mod work;

pub mod testing;

#[doc(hidden)]
pub mod __private;

pub use client::Client;
pub use config::{Config, QueueConfig};
pub use counters::{Counter, Counters, Oldest};
pub use database::Database;
#[cfg(feature = "rustls")]
pub use database::url::connect;
pub use enqueue::copy::enqueue_copy;
pub use enqueue::{enqueue, enqueue_many, enqueue_nowait};
pub use error::Error;
pub use error::driver::DriverError;
pub use executor::{Executor, Unnamed, Value};
pub use handler::{HandlerError, HandlerResult, IntoHandlerResult, RetryLater};
pub use history::{Failure, FoundJob, ListedJob};
#[cfg(feature = "http")]
#[doc(inline)]
pub use http::Secret;
#[doc(inline)]
pub use job::Outcome;
pub use job::{IntoJob, Job, JobArgs, JobId, Misread, NewJob, State};
pub use periodic::{Missed, Periodic};
pub use retry::Backoff;
pub use shutdown::signal;
pub use store::Fence;
pub use store::client::{Filter, Rate};
pub use store::copied_database::{Adoption, adopt};
pub use store::holders::{Holder, HolderKind};
pub use store::migrate::{
    MigrationReport, check_schema, migrate, migrations_sql, migrations_sql_after,
};
pub use store::rebase::rebase;
pub use store::roles::{grant_roles, roles_sql};
pub use work::claims::{Claim, ClaimedJob, Claims};
pub use work::context::Context;
#[cfg(feature = "exec")]
pub use work::exec::Exec;
pub use work::handlers::Next;
#[cfg(feature = "http")]
pub use work::http::Http;
pub use work::{Worker, WorkerBuilder, WorkerHandle};
