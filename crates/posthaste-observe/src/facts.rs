//! The parts of a snapshot: data, and pure questions about it.

use jiff::Timestamp;
use posthaste::State;
use posthaste_sync::{Behind, Problem};

use crate::thresholds::Thresholds;

/// What the server says about itself and this session.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// The database.
    pub database: String,
    /// The version as a number.
    pub version_number: i32,
    /// The version for people.
    pub version: String,
    /// The server only reads.
    pub is_replica: bool,
    /// The server's clock.
    pub at: Timestamp,
    /// The role of the session.
    pub role: String,
    /// The managed platform that it runs on, if it is recognized.
    pub platform: Option<String>,
    /// The role can see what other sessions do.
    pub sees_sessions: bool,
    /// The setting.
    pub fsync: bool,
    /// The setting.
    pub synchronous_commit: String,
    /// The setting.
    pub max_prepared_transactions: i32,
    /// How full the notification queue is, in percent.
    pub notifications: i32,
    /// The encoding of the database.
    pub encoding: String,
    /// Roles of posthaste that do not exist.
    pub missing_roles: Vec<String>,
    /// Schemas of the search_path in which every role can create.
    pub open_schemas: Vec<String>,
}

/// What the store says about itself.
#[derive(Clone, Debug, Default)]
pub struct StoreState {
    /// It was restored or copied, and its jobs were not taken over.
    pub needs_rebase: bool,
    /// The site that works it; nothing where no worker has come yet.
    pub site: Option<String>,
    /// Other sites whose processes wait, in the last minute.
    pub refused: Vec<String>,
    /// A worker does maintenance.
    pub has_leader: bool,
    /// By how many seconds its newest time is ahead of the server's clock.
    pub seconds_ahead: i64,
    /// By how many seconds the clock is ahead of the one by which history is forgotten.
    pub seconds_jumped: i64,
}

/// Segments of the ready log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segments {
    /// In use.
    pub live: i64,
    /// Full, and waiting to be truncated.
    pub sealed: i64,
    /// Held by a transaction with jobs in them.
    pub by_transaction: i64,
    /// Held by a lock on their tables.
    pub by_lock: i64,
}

impl Segments {
    /// Those that wait for the oldest one.
    pub fn behind(&self) -> i64 {
        (self.live - 1).max(0)
    }
}

/// Settings of a queue.
#[derive(Clone, Debug, Default)]
pub struct QueueSettings {
    /// The queue.
    pub name: String,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Jobs for each `per` seconds.
    pub rate: Option<i32>,
    /// Seconds.
    pub per: Option<f64>,
    /// Jobs at once.
    pub burst: Option<i32>,
    /// Seconds for which completed jobs are kept.
    pub keep: Option<f64>,
}

/// A worker that has not stopped.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// When it registered.
    pub started_at: Timestamp,
    /// Seconds since its last heartbeat; negative where that is ahead of the server's clock.
    pub silent: f64,
    /// The queues that it serves; none: it does not say.
    pub queues: Vec<String>,
    /// It does maintenance for all.
    pub leads: bool,
    /// Since when an endpoint of it accepts no jobs.
    pub failing_since: Option<Timestamp>,
    /// Why.
    pub last_error: Option<String>,
}

impl Worker {
    /// Whether its last heartbeat is recent. One from the future was written by a clock that has
    /// stepped back since, and proves nothing.
    pub fn is_alive(&self, thresholds: &Thresholds) -> bool {
        self.silent.abs() <= thresholds.worker_silent.as_secs_f64()
    }

    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|one| one == queue)
    }
}

/// A synced table.
#[derive(Clone, Debug, Default)]
pub struct Sync {
    /// Its name.
    pub name: String,
    /// The table.
    pub table: String,
    /// Its re-indexes are paused.
    pub reindex_paused: bool,
    /// Changes to be indexed now.
    pub due: i64,
    /// Changes that are not due yet.
    pub scheduled: i64,
    /// Jobs of re-indexes.
    pub reindex: i64,
    /// How late its index is, and why, where that was read.
    pub behind: Option<Behind>,
}

impl Sync {
    /// For how long the oldest change has been due and not in the index.
    pub fn lag_seconds(&self) -> Option<f64> {
        self.behind.as_ref()?.seconds
    }

    /// For how long jobs that will be tried again have failed.
    pub fn failing_seconds(&self) -> Option<f64> {
        self.behind.as_ref()?.fails_for()
    }

    /// Why jobs fail.
    pub fn problems(&self) -> &[Problem] {
        self.behind.as_ref().map_or(&[], |behind| &behind.problems)
    }

    pub(crate) fn problems_mut(&mut self) -> &mut [Problem] {
        self.behind
            .as_mut()
            .map_or(&mut [], |late| &mut late.problems)
    }

    /// Changes that are not tried any more.
    pub fn given_up(&self) -> i64 {
        let given_up = self.problems().iter().filter(|one| one.given_up);
        given_up.map(|one| one.jobs).sum()
    }
}

/// What happened in a queue in the last ten minutes, or since the oldest sample of them.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// The queue.
    pub queue: String,
    /// How long that is.
    pub seconds: f64,
    /// Jobs that were enqueued.
    pub enqueued: i64,
    /// Jobs that were completed.
    pub completed: i64,
    /// Attempts that failed.
    pub failed: i64,
    /// The newest error, where that was read.
    pub error: Option<String>,
}

impl Window {
    /// Whether too many of its attempts failed.
    pub fn is_failing(&self, thresholds: &Thresholds) -> bool {
        self.failed >= thresholds.failing_attempts
            && self.failed_share() >= thresholds.failing_share
    }

    /// The share of its attempts that failed.
    pub fn failed_share(&self) -> f64 {
        match self.failed + self.completed {
            0 => 0.0,
            all => self.failed as f64 / all as f64,
        }
    }
}

/// A session that `posthaste txwatch` cancelled or terminated, or failed to.
#[derive(Clone, Debug, Default)]
pub struct EndedTransaction {
    /// When.
    pub at: Timestamp,
    /// `primary`, or the name of a follower.
    pub server: String,
    /// The session.
    pub pid: Option<i32>,
    /// Its role.
    pub role: Option<String>,
    /// Its application.
    pub application: Option<String>,
    /// For how long its transaction had been open.
    pub seconds: Option<f64>,
    /// `cancel` or `terminate`.
    pub action: String,
    /// The rule that decided, 1 for the first.
    pub rule: i32,
    /// `done`, `gone`, or an error.
    pub result: String,
}

/// Jobs of a queue that have failed equally often and are tried again.
#[derive(Clone, Debug, Default)]
pub struct FailingJobs {
    /// The queue.
    pub queue: String,
    /// How often each of them has failed.
    pub attempts: i64,
    /// How many failed in the last hour.
    pub jobs: i64,
    /// Their newest error.
    pub error: Option<String>,
}

/// A periodic job that the leader could not enqueue.
#[derive(Clone, Debug, Default)]
pub struct FailedPeriodic {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: String,
}

/// Jobs of a queue that were given up in the last hour.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// [`State::Dead`] or [`State::Expired`].
    pub state: State,
    /// The queue.
    pub queue: String,
    /// How many; at most a thousand of each state are counted.
    pub jobs: i64,
    /// When the first of them was.
    pub since: Timestamp,
    /// The newest error.
    pub error: Option<String>,
}
