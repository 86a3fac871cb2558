//! The web console of posthaste: what a person on call sees and does.
//!
//! It is a [`Router`](axum::Router) that a program serves beside, or instead of, its own pages. It
//! reads exact counters and bounded windows, never whole tables; one look at the database is shared
//! by all who watch. Everything can be read and done without a script.
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
//! `/live` answers as long as the program does, `/ready` as long as the database does, too. Each
//! action is one event of `tracing` with the target `posthaste::console::audit`.

// In the order of a request's way.
mod network;
mod settings;

mod address;
mod filter;
mod redact;
mod window;

mod chart;
mod figures;
mod verdict;

mod bulk;
mod collector;
mod sampler;
mod search;
mod store;
mod two_phase;

mod app;
mod audit;
mod fault;
mod form;
mod guard;
mod pages;

pub use app::router;
pub use network::{Network, NotANetwork};
pub use posthaste_observe::Thresholds;
pub use settings::{Access, Proxy, Role, Settings};

use posthaste_observe::format as words;
