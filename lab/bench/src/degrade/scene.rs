//! The shared state of producers and workers of one run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::algorithm::Algorithm;
use super::ledger::Ledger;
use super::scenario::Scenario;
use crate::database::Database;

/// One algorithm in its database.
pub(crate) struct Scene<'a> {
    pub(crate) database: &'a Database,
    pub(crate) algorithm: &'a Algorithm,
    pub(crate) scenario: &'a Scenario,
    /// The time after which a job of a dead worker may be claimed again.
    pub(crate) lease: Duration,
    /// The Redis of an algorithm that drains to one.
    pub(crate) redis: Option<&'a str>,
    pub(crate) ledger: Arc<Ledger>,
    /// Turns false at the end.
    pub(crate) going: watch::Receiver<bool>,
}
