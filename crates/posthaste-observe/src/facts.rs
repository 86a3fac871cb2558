//! The parts of a snapshot: data, and pure questions about the data.

use jiff::Timestamp;
use posthaste::State;
use posthaste_sync::{Problem, SyncLag};

use crate::thresholds::Thresholds;

/// The server, its settings and this session.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// The name of the database.
    pub database: String,
    /// The version as a number, such as 170002.
    pub version_number: i32,
    /// The version as text, for people.
    pub version: String,
    /// Whether the server is a read-only replica.
    pub is_replica: bool,
    /// The time of the server's clock.
    pub at: Timestamp,
    /// The role of the session.
    pub role: String,
    /// The managed platform of the server, if it is recognized.
    pub platform: Option<String>,
    /// Whether the role can see the activity of other sessions.
    pub sees_sessions: bool,
    /// The setting `fsync`.
    pub fsync: bool,
    /// The setting `synchronous_commit`.
    pub synchronous_commit: String,
    /// The setting `max_prepared_transactions`.
    pub max_prepared_transactions: i32,
    /// The usage of the notification queue, in percent.
    pub notifications: i32,
    /// The encoding of the database.
    pub encoding: String,
    /// Roles of posthaste that do not exist.
    pub missing_roles: Vec<String>,
    /// Schemas of the search_path in which every role can create.
    pub open_schemas: Vec<String>,
}

/// The state of the store as a whole.
#[derive(Clone, Debug, Default)]
pub struct StoreState {
    /// Whether the store was restored or copied and its jobs were not taken over.
    pub needs_rebase: bool,
    /// The site whose workers use the store; `None` before the first worker.
    pub site: Option<String>,
    /// Other sites whose processes were refused in the last minute and wait.
    pub refused: Vec<String>,
    /// Whether a worker holds the lease for maintenance.
    pub has_leader: bool,
    /// Seconds by which the newest time in the store is ahead of the server's clock.
    pub seconds_ahead: i64,
    /// Seconds by which the server's clock is ahead of the clock that expires history.
    pub seconds_jumped: i64,
}

/// Segments of the ready log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segments {
    /// Segments in use.
    pub live: i64,
    /// Full segments that wait to be truncated.
    pub sealed: i64,
    /// Segments that an open transaction with jobs in them holds.
    pub by_transaction: i64,
    /// Segments that a lock on their tables holds.
    pub by_lock: i64,
}

impl Segments {
    /// Returns how many segments wait until the oldest one is truncated.
    pub fn untruncated(&self) -> i64 {
        (self.live - 1).max(0)
    }
}

/// Settings of a queue.
#[derive(Clone, Debug, Default)]
pub struct QueueSettings {
    /// The name of the queue.
    pub name: String,
    /// When it was paused; `None` if it is not.
    pub paused_at: Option<Timestamp>,
    /// The rate limit: jobs started in each `per` seconds.
    pub rate: Option<i32>,
    /// The period of the rate limit, in seconds.
    pub per: Option<f64>,
    /// Jobs that the rate limit lets start at once.
    pub burst: Option<i32>,
    /// Retention of completed jobs, in seconds.
    pub keep: Option<f64>,
}

/// A worker that has not stopped.
#[derive(Clone, Debug, Default)]
pub struct Worker {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// When it registered.
    pub started_at: Timestamp,
    /// Seconds since its last heartbeat; negative if that is ahead of the server's clock.
    pub silent: f64,
    /// The queues that it serves; empty if it has not reported them.
    pub queues: Vec<String>,
    /// Whether it is the leader, which does maintenance.
    pub leads: bool,
    /// When one of its endpoints began to refuse jobs; `None` while all accept them.
    pub failing_since: Option<Timestamp>,
    /// The newest error of such an endpoint.
    pub last_error: Option<String>,
}

impl Worker {
    /// Returns whether its last heartbeat is recent. A heartbeat in the future does not count: the
    /// clock has stepped back since it was written.
    pub fn is_alive(&self, thresholds: &Thresholds) -> bool {
        self.silent.abs() <= thresholds.worker_silent.as_secs_f64()
    }

    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|one| one == queue)
    }
}

/// A synced table and its jobs.
#[derive(Clone, Debug, Default)]
pub struct SyncedTable {
    /// Its name.
    pub name: String,
    /// The name of the table.
    pub table: String,
    /// Whether its re-indexes are paused.
    pub reindex_paused: bool,
    /// Jobs of changes that are due or running.
    pub due: i64,
    /// Jobs of changes that are scheduled or will be retried.
    pub scheduled: i64,
    /// Pending jobs of re-indexes.
    pub reindex: i64,
    /// The lag of its index and its problems; `None` if they were not read.
    pub behind: Option<SyncLag>,
}

impl SyncedTable {
    /// Returns how long the oldest change has been due without being in the index, in seconds.
    pub fn lag_seconds(&self) -> Option<f64> {
        self.behind.as_ref()?.seconds
    }

    /// Returns how long jobs that will be retried have been failing, in seconds.
    pub fn failing_seconds(&self) -> Option<f64> {
        self.behind.as_ref()?.fails_for()
    }

    /// Returns the problems of its jobs.
    pub fn problems(&self) -> &[Problem] {
        self.behind.as_ref().map_or(&[], |behind| &behind.problems)
    }

    pub(crate) fn problems_mut(&mut self) -> &mut [Problem] {
        self.behind
            .as_mut()
            .map_or(&mut [], |late| &mut late.problems)
    }

    /// Returns how many changes are no longer retried.
    pub fn given_up(&self) -> i64 {
        let given_up = self.problems().iter().filter(|one| one.given_up);
        given_up.map(|one| one.jobs).sum()
    }
}

/// The activity of a queue in the last ten minutes, or since the oldest sample of that time.
#[derive(Clone, Debug, Default)]
pub struct QueueActivity {
    /// The name of the queue.
    pub queue: String,
    /// The length of that time, in seconds.
    pub seconds: f64,
    /// Jobs that were enqueued.
    pub enqueued: i64,
    /// Jobs that were completed.
    pub completed: i64,
    /// Attempts that failed.
    pub failed: i64,
    /// The newest error; `None` unless more than a tenth of the attempts failed.
    pub error: Option<String>,
}

impl QueueActivity {
    /// Returns whether too many of its attempts failed.
    pub fn is_failing(&self, thresholds: &Thresholds) -> bool {
        self.failed >= thresholds.failing_attempts
            && self.failed_share() >= thresholds.failing_share
    }

    /// Returns the share of its attempts that failed, from 0 to 1.
    pub fn failed_share(&self) -> f64 {
        match self.failed + self.completed {
            0 => 0.0,
            all => self.failed as f64 / all as f64,
        }
    }
}

/// A session that `posthaste txwatch` cancelled or terminated, or tried to.
#[derive(Clone, Debug, Default)]
pub struct EndedTransaction {
    /// The time of the action.
    pub at: Timestamp,
    /// `primary`, or the name of a follower.
    pub server: String,
    /// The process id of the session.
    pub pid: Option<i32>,
    /// Its role.
    pub role: Option<String>,
    /// Its application.
    pub application: Option<String>,
    /// How long its transaction had been open, in seconds.
    pub seconds: Option<f64>,
    /// `cancel` or `terminate`.
    pub action: String,
    /// The rule that decided, 1 for the first.
    pub rule: i32,
    /// `done`, `gone`, or an error.
    pub result: String,
}

/// Jobs of a queue that failed the same number of times and will be retried.
#[derive(Clone, Debug, Default)]
pub struct FailingJobs {
    /// The name of the queue.
    pub queue: String,
    /// The failed attempts of each.
    pub attempts: i64,
    /// Their number, among jobs that failed in the last 75 minutes.
    pub jobs: i64,
    /// Their newest error.
    pub error: Option<String>,
}

/// A periodic job that the leader could not enqueue.
#[derive(Clone, Debug, Default)]
pub struct FailedPeriodicJob {
    /// Its name.
    pub name: String,
    /// The error.
    pub error: String,
}

/// Jobs of a queue that died or expired in the last hour.
#[derive(Clone, Debug)]
pub struct GivenUpJobs {
    /// [`State::Dead`] or [`State::Expired`].
    pub state: State,
    /// The name of the queue.
    pub queue: String,
    /// Their number; at most a thousand of each state are counted.
    pub jobs: i64,
    /// When the first of them died or expired.
    pub since: Timestamp,
    /// The newest error.
    pub error: Option<String>,
}
