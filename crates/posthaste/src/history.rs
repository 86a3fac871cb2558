//! What [`Client`](crate::Client) says of jobs: where each is, and how its attempts failed.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::job::{JobId, State};

/// A job that [`Client::find`](crate::Client::find) found, or
/// [`Client::dead`](crate::Client::dead).
#[derive(Clone)]
#[non_exhaustive]
pub struct FoundJob {
    /// Its number.
    pub id: JobId,
    /// What kind of work it is.
    pub name: String,
    /// Where it waits or waited.
    pub queue: String,
    /// Lower runs first.
    pub priority: i32,
    /// When it is or became due.
    pub scheduled_at: Timestamp,
    /// It is never started after this.
    pub expires_at: Timestamp,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Which part of the program enqueued it.
    pub tag: String,
    /// The unique key it was enqueued with.
    pub unique_key: Option<String>,
    /// Jobs with the same one run one at a time.
    pub ordering_key: Option<String>,
    /// The trace context it was enqueued with.
    pub trace: Option<String>,
    /// How many attempts were counted so far.
    pub attempts: i32,
    /// How many attempts there may be; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Where it is.
    pub state: State,
    /// Why its last attempt failed.
    pub last_error: Option<String>,
    /// Who has it, or had it when it was done, where that is known.
    pub worker: Option<i64>,
    /// That worker's name; forgotten a day after its end, except for jobs that their queue keeps.
    pub worker_name: Option<String>,
    /// When that worker claimed it.
    pub claimed_at: Option<Timestamp>,
    /// When it was done or given up. Not known of a done job that its queue does not keep.
    pub ended_at: Option<Timestamp>,
    /// What receivers drop repeats by.
    pub delivery_id: Uuid,
    pub(crate) kwargs: String,
}

impl FoundJob {
    /// The arguments, read as `T`.
    pub fn kwargs<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.kwargs)
    }

    /// The arguments as the JSON text that the database keeps.
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

/// A job in a list of [`Client::list`](crate::Client::list): without its arguments, and without who
/// has it. [`Client::find`](crate::Client::find) tells both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedJob {
    /// Its number.
    pub id: JobId,
    /// What kind of work it is.
    pub name: String,
    /// Where it waits or waited.
    pub queue: String,
    /// Lower runs first.
    pub priority: i32,
    /// When it is or became due.
    pub scheduled_at: Timestamp,
    /// It is never started after this.
    pub expires_at: Timestamp,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Which part of the program enqueued it.
    pub tag: String,
    /// The unique key it was enqueued with.
    pub unique_key: Option<String>,
    /// Jobs with the same one run one at a time.
    pub ordering_key: Option<String>,
    /// How many attempts were counted so far.
    pub attempts: i32,
    /// How many attempts there may be; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Where it is.
    pub state: State,
    /// Why its last attempt failed.
    pub last_error: Option<String>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// 1 for the first attempt. A worker's death need not count as one, so a number may come again.
    pub attempt: i32,
    /// When it ended.
    pub at: Timestamp,
    /// `retried` (another follows), `dead` (it was the last), `discarded`, `cancelled` or `crashed`
    /// (its worker died).
    pub outcome: String,
    /// Who had the job; `None` when it waited for a confirmation.
    pub worker: Option<i64>,
    /// That worker's name.
    pub worker_name: Option<String>,
    /// The error, if there was one.
    pub error: Option<String>,
}
