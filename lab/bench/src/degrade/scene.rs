//! What producers and workers of one run share.

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
    /// After this long a job of a worker that has gone may be claimed again.
    pub(crate) lease: Duration,
    /// Where it drains to, if it does.
    pub(crate) redis: Option<&'a str>,
    pub(crate) ledger: Arc<Ledger>,
    /// Turns false at the end.
    pub(crate) going: watch::Receiver<bool>,
}
