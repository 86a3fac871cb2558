//! The web console of posthaste, for people who operate queues.
//!
//! It is a [`Router`](axum::Router) that a program serves alone or with its own pages. It reads
//! exact counters and bounded windows, never whole tables; all viewers share one read of the
//! database. Every page and every action works without a script.
//!
//! ```no_run
//! use posthaste_console::{Settings, router};
//!
//! # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
//! let console = router(pool, Settings::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, console).await?;
//! # Ok(()) }
//! ```
//!
//! `/live` succeeds while the program runs, `/ready` while the database answers too. Each action is
//! one `tracing` event with the target `posthaste::console::audit`.

// A module imports only from groups above its own.
mod format;
mod network;
mod path_prefix;
mod two_phase;

mod filter;
mod settings;
mod window;

mod action;
mod address;
mod notice;
mod redact;
mod token;

mod chart;
mod verdict;

mod figures;
mod store;

mod causes;
mod collector;
mod fault;
mod search;

mod form;
mod visit;

mod audit;

mod bulk;

mod app;

mod guard;
mod sampler;

mod pages;

mod headers;

mod router;

pub use guard::is_loopback_host;
pub use network::{Network, NotANetwork};
pub use path_prefix::{NotAPathPrefix, PathPrefix};
pub use posthaste_observe::Thresholds;
pub use router::router;
pub use settings::{Access, Proxy, Role, Settings};
