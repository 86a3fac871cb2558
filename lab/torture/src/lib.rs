//! Kills, cuts, crashes and promotes everything around posthaste while it works, then checks the
//! history.
//!
//! A run consists of rounds. Each has a separate server, database and worker processes, a load, a
//! share of the faults, and a check: one pure function compares the jobs of the producers
//! ([`history`]), the actions of the handlers and the final state of the store ([`check()`]).
//! [`bugs`] proves that the checker detects violations: it runs rounds against a store, a worker or
//! a producer that is broken on purpose.
//!
//! [`transfers`] does the same to executors of the two-phase commit, which need no Postgres.

pub mod bugs;
mod capture;
mod check;
pub mod history;
mod load;
mod plan;
mod relay;
mod report;
mod round;
pub mod run;
pub mod transfers;
mod worker;

pub use capture::{CaptureOptions, capture};
pub use check::{Finding, Rule, Verdict, check, check_clocked, check_idle, check_relays};
pub use plan::{Counts, Pace, Plan, Processes, RoundPlan};
pub use relay::{RelayOptions, relay};
pub use report::{BugHunt, BugReport, Report};
pub use round::{Environment, Round};
pub use worker::{WorkerOptions, work};
