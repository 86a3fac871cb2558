//! The base of posthaste's tests: real Postgres servers, connections that are cut at a chosen byte,
//! child processes that are killed at a chosen time, and a ledger of what really ran.
//!
//! Nothing started here outlives the test process, however that process ends (see [`postgres`]).
//! The crate does not depend on posthaste: the tests bring the schema.
//!
//! ```no_run
//! use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb};
//!
//! # async fn example() -> anyhow::Result<()> {
//! let server = PgServer::shared(PgVersion::any())?;
//! let database = TestDb::from_template(server, "notes", async |url| {
//!     let client = posthaste_testkit::connect(&url).await?;
//!     client.run("CREATE TABLE note (body text)").await
//! })
//! .await?;
//! database.client().await?.run("INSERT INTO note VALUES ('hello')").await?;
//! # Ok(()) }
//! ```

mod account;
mod child;
mod database;
pub mod elastic;
mod eventually;
mod folder;
mod look;
pub mod mutations;
mod pooler;
mod ports;
pub mod postgres;
mod proxy;
pub mod ran;
pub mod receivers;
mod result;
mod run;
mod shared;
mod sql;
mod watchdog;

pub use child::{Child, command, is_alive};
pub use database::{TestDb, connect};
pub use eventually::{eventually, reaches};
pub use look::number;
pub use postgres::{PgServer, PgVersion};
pub use proxy::{LostAnswer, Proxy, RequestMatcher};
pub use result::{TestError, TestResult};
pub use run::{TestRun, Watched, more_descriptors};
pub use shared::{SERVERS, unique};
pub use sql::{FromRow, Sql};
