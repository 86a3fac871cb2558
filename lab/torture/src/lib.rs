//! Kills, cuts, crashes and promotes everything around posthaste while it works, then checks the
//! history of it.
//!
//! A run is made of rounds. Each has a server, a database and worker processes of its own, a load,
//! a share of the faults, and a judgement: what the producers meant ([`history`]), what the
//! handlers did and what the store says in the end are compared by one pure function ([`check()`]).
//! That the judgement would notice is shown by [`bugs`], which plays rounds against a store, a
//! worker or a producer that is broken on purpose.
//!
//! Beside it, [`transfers`] does the same to executors of the two-phase commit, which needs no
//! Postgres.

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
