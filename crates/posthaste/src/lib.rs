//! posthaste: the transactional gate between Postgres and everything behind it.
//!
//! A program commits a job in the same transaction as its data; from there posthaste guarantees that the work happens: never before the
//! commit, never for a rolled-back transaction, never lost, and not slowed down by somebody else's long transaction.
//!
//! The modules stand in the order in which a job passes through them: [`enqueue()`] writes it, the store keeps it, a claim hands it to
//! a [`Consumer`], the worker runs it, and the acknowledgement closes it.
//!
//! ```no_run
//! use posthaste::{NewJob, Outcome, Worker};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Welcome {
//!     name: String,
//! }
//!
//! # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = pool.get().await?;
//! let tx = client.transaction().await?;
//! tx.execute("INSERT INTO account (name) VALUES ($1)", &[&"ada"]).await?;
//! let mail = NewJob::new("mail.welcome", &Welcome { name: "ada".into() })?;
//! posthaste::enqueue(&tx, &mail).await?;
//! tx.commit().await?; // both or neither
//!
//! let worker = Worker::builder(pool)
//!     .queue("default", 16)
//!     .handler_of("mail.welcome", |_context, mail: Welcome| async move {
//!         println!("welcome, {}", mail.name);
//!         Ok(Outcome::Done)
//!     })
//!     .start()
//!     .await?;
//! worker.run_until_signal().await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod error;
mod job;

mod acknowledge;
mod cancel;
mod claim;
mod consumer;
mod enqueue;
mod executor;
#[cfg(feature = "http")]
mod http;
pub mod relay;
mod store;
pub mod sync;
mod work;

mod bell;
mod config;
mod counters;
mod engine;
mod heartbeat;
mod history;
mod maintenance;
mod periodic;
mod retry;
mod settings;
mod shutdown;
mod tally;

pub use config::{Config, QueueConfig};
pub use consumer::{Consumer, Delivery, Outcome, Ticket};
pub use counters::{Counter, Counters, Oldest, counters};
pub use enqueue::copy::enqueue_copy;
pub use enqueue::{enqueue, enqueue_many, enqueue_nowait};
pub use error::Error;
pub use executor::{DriverError, Executor, Unnamed, Value};
pub use history::{Failure, Found, failures, find, retry};
#[cfg(feature = "http")]
pub use http::Secret;
pub use job::{Event, IllegalTransition, Job, JobId, NewJob, State, next};
pub use periodic::{Missed, Periodic};
pub use retry::Backoff;
pub use shutdown::signal;
pub use store::Fence;
pub use store::migrate::{MigrationReport, check_schema, migrate, migrations_sql};
pub use store::restore::rebase;
pub use store::roles::{grant_roles, roles_sql};
#[cfg(feature = "exec")]
pub use work::exec::Exec;
pub use work::handler::{Context, HandlerError, HandlerResult, TryAgain};
#[cfg(feature = "http")]
pub use work::http::Http;
pub use work::{Worker, WorkerBuilder, WorkerHandle};
