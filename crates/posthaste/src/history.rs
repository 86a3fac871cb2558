//! Jobs as [`Client`](crate::Client) returns them: their states, and their failed attempts.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::job::{JobId, State};

/// A job as [`Client::find`](crate::Client::find) and [`Client::dead`](crate::Client::dead) return
/// it.
#[derive(Clone)]
#[non_exhaustive]
pub struct FoundJob {
    /// Its number.
    pub id: JobId,
    /// The kind of work.
    pub name: String,
    /// The queue in which it waits or waited.
    pub queue: String,
    /// The priority: lower runs first.
    pub priority: i32,
    /// When it is or became due.
    pub scheduled_at: Timestamp,
    /// The time after which it is never started.
    pub expires_at: Timestamp,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// The part of the program that enqueued it.
    pub tag: String,
    /// The unique key with which it was enqueued.
    pub unique_key: Option<String>,
    /// The ordering key: jobs with the same one run one at a time.
    pub ordering_key: Option<String>,
    /// The trace context with which it was enqueued.
    pub trace: Option<String>,
    /// The number of attempts counted so far.
    pub attempts: i32,
    /// The most attempts; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Its state.
    pub state: State,
    /// The error of its last failed attempt.
    pub last_error: Option<String>,
    /// The worker that has it, or had it when it completed, if known.
    pub worker: Option<i64>,
    /// That worker's name; deleted a day after the worker's end, except for jobs that their queue
    /// keeps.
    pub worker_name: Option<String>,
    /// When that worker claimed it.
    pub claimed_at: Option<Timestamp>,
    /// When it completed or ended otherwise. Unknown for a completed job that its queue does not
    /// keep.
    pub ended_at: Option<Timestamp>,
    /// The id by which receivers drop duplicates.
    pub delivery_id: Uuid,
    pub(crate) kwargs: String,
}

impl FoundJob {
    /// Deserializes the arguments.
    pub fn kwargs<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.kwargs)
    }

    /// Returns the arguments as the JSON text that the database stores.
    pub fn kwargs_json(&self) -> &str {
        &self.kwargs
    }
}

/// Arguments stay out of logs.
impl fmt::Debug for FoundJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoundJob")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A job in a list of [`Client::list`](crate::Client::list), without its arguments and its worker.
/// [`Client::find`](crate::Client::find) returns both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedJob {
    /// Its number.
    pub id: JobId,
    /// The kind of work.
    pub name: String,
    /// The queue in which it waits or waited.
    pub queue: String,
    /// The priority: lower runs first.
    pub priority: i32,
    /// When it is or became due.
    pub scheduled_at: Timestamp,
    /// The time after which it is never started.
    pub expires_at: Timestamp,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// The part of the program that enqueued it.
    pub tag: String,
    /// The unique key with which it was enqueued.
    pub unique_key: Option<String>,
    /// The ordering key: jobs with the same one run one at a time.
    pub ordering_key: Option<String>,
    /// The number of attempts counted so far.
    pub attempts: i32,
    /// The most attempts; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Its state.
    pub state: State,
    /// The error of its last failed attempt.
    pub last_error: Option<String>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The number of the attempt, from 1. A worker's death need not count as an attempt, so a
    /// number may occur again.
    pub attempt: i32,
    /// When it ended.
    pub at: Timestamp,
    /// `retried` (another attempt follows), `dead` (it was the last), `discarded`, `cancelled` or
    /// `crashed` (its worker died).
    pub outcome: String,
    /// The worker that had the job; `None` if the job waited for a confirmation.
    pub worker: Option<i64>,
    /// That worker's name.
    pub worker_name: Option<String>,
    /// The error, if there was one.
    pub error: Option<String>,
}
