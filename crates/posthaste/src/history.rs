//! Beside the way of a job: where one is, how its attempts failed, and letting it run now.

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::error::Error;
use crate::job::{JobId, State};
use crate::store::history as store;

/// Looks for a job. None: it is not known any more, or never was.
///
/// A job that is done is found while its generation lives, and for as long as its queue keeps done jobs (`posthaste.keep`).
///
/// ```no_run
/// # async fn example(client: tokio_postgres::Client, id: posthaste::JobId) -> Result<(), posthaste::Error> {
/// if let Some(job) = posthaste::find(&client, id).await? {
///     println!("job {id} is {}, attempt {}", job.state, job.attempt);
///     for failure in posthaste::failures(&client, id).await? {
///         println!("{}: {}", failure.at, failure.error.as_deref().unwrap_or("asked for a retry"));
///     }
/// }
/// # Ok(()) }
/// ```
pub async fn find(client: &Client, id: JobId) -> Result<Option<Found>, Error> {
    store::find(client, id).await
}

/// Failed attempts of a job, the first of them first, whatever became of it. They are kept for a week, unless `posthaste.setting` says otherwise.
pub async fn failures(client: &Client, id: JobId) -> Result<Vec<Failure>, Error> {
    store::failures(client, id).await
}

/// Lets jobs run now that wait for their time, be they scheduled or to be tried again; they keep the attempts that they have burnt. Answers where each
/// job that is known is then: [`Claimable`](State::Claimable), or where it stays.
///
/// ```no_run
/// # async fn example(client: tokio_postgres::Client, id: posthaste::JobId) -> Result<(), posthaste::Error> {
/// let now = posthaste::retry(&client, &[id]).await?;
/// assert_eq!(now, [(id, posthaste::State::Claimable)]);
/// # Ok(()) }
/// ```
pub async fn retry(client: &Client, ids: &[JobId]) -> Result<Vec<(JobId, State)>, Error> {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    store::retry(client, &ids).await
}

/// A job that [`find`] found.
#[derive(Clone)]
#[non_exhaustive]
pub struct Found {
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
    /// Attempts burnt so far.
    pub attempt: i32,
    /// How many attempts may be burnt; `None` for no limit.
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

impl Found {
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
impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// 1 for the first attempt. A worker's death need not burn one, so a number may come again.
    pub attempt: i32,
    /// When it ended.
    pub at: Timestamp,
    /// `retried` (another follows), `dead` (it was the last), `discarded`, `cancelled` or `crashed` (its worker died).
    pub outcome: String,
    /// Who had the job; `None` when it waited for a confirmation.
    pub worker: Option<i64>,
    /// That worker's name.
    pub worker_name: Option<String>,
    /// What went wrong, where that was said.
    pub error: Option<String>,
}
