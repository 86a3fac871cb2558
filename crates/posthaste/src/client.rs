//! Operations on jobs and queues for operators and programs, in a transaction of any driver.

use std::time::Duration;

use uuid::Uuid;

use crate::counters::Counters;
use crate::error::Error;
use crate::executor::Executor;
use crate::history::{Failure, FoundJob, ListedJob};
use crate::job::{JobId, State, check_text};
use crate::store::client::{self as store, Filter, Rate};
use crate::store::migrate::{self, MigrationReport};

/// States of jobs that can be listed: all but completed.
const LISTABLE_STATES: [State; 11] = [
    State::Scheduled,
    State::Available,
    State::Blocked,
    State::Running,
    State::Retrying,
    State::Awaiting,
    State::Quarantined,
    State::Dead,
    State::Discarded,
    State::Expired,
    State::Cancelled,
];
/// States of jobs that failed permanently and are retained.
const GIVEN_UP_STATES: [State; 4] = [
    State::Dead,
    State::Discarded,
    State::Expired,
    State::Cancelled,
];
/// States of jobs whose wait a retry ends.
const RETRYABLE_STATES: [State; 3] = [State::Scheduled, State::Retrying, State::Quarantined];

/// The longest retention of completed jobs.
const MAX_RETENTION: Duration = Duration::from_secs(3_660 * 86_400);

/// Finds, lists, cancels, retries and redrives jobs; pauses and limits queues; counts jobs;
/// migrates: the operations of an operator, in Rust and over any [`Executor`].
///
/// Each call is one statement, except for [`migrate`](Self::migrate), which needs a transaction.
/// Over a connection the call is a transaction by itself; over a transaction it takes effect when
/// that commits, and never if it rolls back. [`cancel`](Self::cancel) and [`retry`](Self::retry)
/// need READ COMMITTED, and block claims or the promotion of scheduled jobs until the transaction
/// ends: give them a separate one.
///
/// Each call fails with the error of its driver ([`Error::is_connection`], [`Error::sqlstate`]), or
/// if the database is not migrated. Arguments that are known to be invalid are rejected before
/// anything is sent ([`Error::is_invalid`]).
///
/// ```no_run
/// use posthaste::{Client, Filter};
///
/// # async fn example(mut connection: tokio_postgres::Client)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let tx = connection.transaction().await?;
/// let mut jobs = Client::new(&tx); // with sqlx `&mut *tx`: see Executor
/// let timeouts = Filter::new().queue("mail").error_like("%timeout%");
/// for job in jobs.dead(&timeouts).await? {
///     println!("job {} is {}, {} attempts counted", job.id, job.state, job.attempts);
/// }
/// let again = jobs.redrive_where(&timeouts).await?;
/// println!("{} jobs redriven", again.len());
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client<E>(E);

impl<E: Executor> Client<E> {
    /// Creates a client that runs its statements in this transaction or over this connection.
    ///
    /// ```no_run
    /// # async fn example(pool: deadpool_postgres::Pool)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let connection = pool.get().await?;
    /// let was_worked = posthaste::Client::new(&connection).pause("mail").await?;
    /// # Ok(()) }
    /// ```
    pub fn new(executor: E) -> Self {
        Self(executor)
    }

    /// Finds a job. `None`: it is no longer known, or never existed.
    ///
    /// A completed job is found while its segment exists, and for as long as its queue keeps
    /// completed jobs ([`keep`](Self::keep)).
    ///
    /// ```no_run
    /// # async fn example(client: tokio_postgres::Client, id: posthaste::JobId)
    /// #     -> Result<(), posthaste::Error> {
    /// let mut jobs = posthaste::Client::new(&client);
    /// if let Some(job) = jobs.find(id).await? {
    ///     println!("job {id} is {}, {} attempts counted", job.state, job.attempts);
    ///     for failure in jobs.failures(id).await? {
    ///         let error = failure.error.as_deref().unwrap_or("asked for a retry");
    ///         println!("{}: {error}", failure.at);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn find(&mut self, id: JobId) -> Result<Option<FoundJob>, Error> {
        store::find(&mut self.0, id).await
    }

    /// Lists jobs that are not completed, the newest first unless the filter has another order; at
    /// most 50 unless the filter has a limit. It reads all jobs of the store: for numbers,
    /// [`counters`](Self::counters) is fast.
    ///
    /// Fails with [`Error::is_invalid`] if the filter's state is [`State::Completed`].
    pub async fn list(&mut self, filter: &Filter) -> Result<Vec<ListedJob>, Error> {
        filter.check(&LISTABLE_STATES)?;
        store::list(&mut self.0, filter).await
    }

    /// Lists jobs that ended without completing (dead, discarded, expired, cancelled), the latest
    /// to end first unless the filter has another order; at most 50 unless the filter has a limit.
    /// Each is what [`find`](Self::find) returns.
    ///
    /// Fails with [`Error::is_invalid`] if the filter's state is another one.
    pub async fn dead(&mut self, filter: &Filter) -> Result<Vec<FoundJob>, Error> {
        filter.check(&GIVEN_UP_STATES)?;
        store::dead(&mut self.0, filter).await
    }

    /// Returns the last thousand failed attempts of a job, oldest first, regardless of the job's
    /// state. They are retained for a week, unless `posthaste.setting` has another value.
    pub async fn failures(&mut self, id: JobId) -> Result<Vec<Failure>, Error> {
        store::failures(&mut self.0, id).await
    }

    /// Cancels jobs. A waiting job is retained as cancelled and never runs. Of a running job, the
    /// worker notifies the handler, and ends it five seconds later.
    ///
    /// Returns the state of each job that is not completed, ordered by id:
    /// - [`Cancelled`](State::Cancelled): it never runs.
    /// - [`Running`](State::Running): its worker is requested to end it. If it completes first, it
    ///   is completed.
    /// - [`Dead`](State::Dead), [`Discarded`](State::Discarded) or [`Expired`](State::Expired): how
    ///   it had ended before.
    /// - [`Available`](State::Available): it still waits. One call cancels in at most two hundred
    ///   lanes, so repeat it for this job in the next transaction.
    ///
    /// It reads the slots to find the jobs: pass many ids in one call.
    ///
    /// ```no_run
    /// use posthaste::{Client, State};
    ///
    /// # async fn example(client: tokio_postgres::Client, id: posthaste::JobId)
    /// #     -> Result<(), posthaste::Error> {
    /// match Client::new(&client).cancel(&[id]).await?.first() {
    ///     Some((_, State::Running)) => println!("its worker is asked to end it"),
    ///     Some((_, state)) => println!("it is {state}"),
    ///     None => println!("it is done, or there never was one"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&mut self, ids: &[JobId]) -> Result<Vec<(JobId, State)>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        store::cancel(&mut self.0, ids).await
    }

    /// Ends the wait of jobs: scheduled and retrying ones become available now, and a quarantined
    /// one runs as soon as a worker can run it alone. They keep the attempts that were counted.
    /// Returns the state of each known job afterwards, ordered by id:
    /// [`Available`](State::Available), [`Blocked`](State::Blocked) (until earlier jobs of its
    /// ordering key have ended), or the state in which it stays.
    ///
    /// ```no_run
    /// # async fn example(client: tokio_postgres::Client, id: posthaste::JobId)
    /// #     -> Result<(), posthaste::Error> {
    /// let now = posthaste::Client::new(&client).retry(&[id]).await?;
    /// assert_eq!(now, [(id, posthaste::State::Available)]);
    /// # Ok(()) }
    /// ```
    pub async fn retry(&mut self, ids: &[JobId]) -> Result<Vec<(JobId, State)>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let these = Filter::new().ids(ids.iter().copied());
        store::retry(&mut self.0, &these).await
    }

    /// Retries the jobs that this filter selects, as [`retry`](Self::retry) does: the earliest due
    /// first, at most a thousand unless the filter has a limit.
    ///
    /// Fails with [`Error::is_invalid`] if the filter's state is not
    /// [`Scheduled`](State::Scheduled), [`Retrying`](State::Retrying) or
    /// [`Quarantined`](State::Quarantined).
    pub async fn retry_where(&mut self, filter: &Filter) -> Result<Vec<(JobId, State)>, Error> {
        filter.check(&RETRYABLE_STATES)?;
        store::retry(&mut self.0, filter).await
    }

    /// Makes jobs that ended without completing available again, and returns the ids of those that
    /// it redrove, in order. A job keeps its id and its delivery id, gets all its attempts again,
    /// and expires 30 days from now at the earliest. A job whose unique key another job now holds
    /// is skipped, as is one that another client redrives at the same time.
    pub async fn redrive(&mut self, ids: &[JobId]) -> Result<Vec<JobId>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let these = Filter::new().ids(ids.iter().copied());
        store::redrive(&mut self.0, &these).await
    }

    /// Redrives the jobs that this filter selects, as [`redrive`](Self::redrive) does: the earliest
    /// to end first, at most a thousand unless the filter has a limit.
    ///
    /// Fails with [`Error::is_invalid`] if the filter's state is not [`Dead`](State::Dead),
    /// [`Discarded`](State::Discarded), [`Expired`](State::Expired) or
    /// [`Cancelled`](State::Cancelled).
    pub async fn redrive_where(&mut self, filter: &Filter) -> Result<Vec<JobId>, Error> {
        filter.check(&GIVEN_UP_STATES)?;
        store::redrive(&mut self.0, filter).await
    }

    /// Pauses a queue: from the commit on no worker claims from it; running jobs and enqueues
    /// continue. Returns `false` if it was paused already.
    pub async fn pause(&mut self, queue: &str) -> Result<bool, Error> {
        check_queue(queue)?;
        store::pause(&mut self.0, queue).await
    }

    /// Resumes a queue: workers claim from it again. Returns `false` if it was not paused.
    pub async fn resume(&mut self, queue: &str) -> Result<bool, Error> {
        check_queue(queue)?;
        store::resume(&mut self.0, queue).await
    }

    /// Limits the rate at which all workers together claim jobs of a queue; `None` removes the
    /// limit. In any time `t` at most `burst + t * jobs / per` jobs are claimed, including retries
    /// but not quarantined jobs. Setting a rate allows a burst at once.
    ///
    /// Fails with [`Error::is_invalid`] if the rate is out of range, and with SQLSTATE 54000 if 64
    /// queues have a rate already.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use posthaste::{Client, Rate};
    ///
    /// # async fn example(client: tokio_postgres::Client) -> Result<(), posthaste::Error> {
    /// let mut queues = Client::new(&client);
    /// let rate = Rate::new(90, Duration::from_secs(60)).burst(3);
    /// queues.limit("mail", Some(rate)).await?;
    /// queues.limit("mail", None).await?; // as many as there are
    /// # Ok(()) }
    /// ```
    pub async fn limit(&mut self, queue: &str, rate: Option<Rate>) -> Result<(), Error> {
        check_queue(queue)?;
        rate.as_ref().map_or(Ok(()), Rate::check)?;
        store::limit(&mut self.0, queue, rate.as_ref()).await
    }

    /// Sets the least time for which completed jobs of a queue are retained, so that
    /// [`find`](Self::find) finds them: a microsecond to 3,660 days; `None`: no longer than the
    /// store needs. Returns `false` if the value was the same before.
    ///
    /// Fails with [`Error::is_invalid`] if the time is out of range.
    pub async fn keep(&mut self, queue: &str, keep: Option<Duration>) -> Result<bool, Error> {
        check_queue(queue)?;
        if keep.is_some_and(|keep| keep.as_micros() < 1 || keep > MAX_RETENTION) {
            let reason = "must be between a microsecond and 3660 days";
            return Err(Error::invalid("keep", reason));
        }
        store::keep(&mut self.0, queue, keep).await
    }

    /// Confirms the effect of an awaiting job, best in the transaction of that effect. Returns
    /// `true` if the id is of this database; a second confirmation does nothing. Returns `false` if
    /// it is not, or if it was given to a row of `posthaste.outbox` that is done.
    pub async fn confirm(&mut self, delivery_id: Uuid) -> Result<bool, Error> {
        store::confirm(&mut self.0, delivery_id).await
    }

    /// Migrates the schema in this transaction, as [`migrate`](crate::migrate) does in a separate
    /// one: the migration takes effect when the transaction commits. For programs that migrate over
    /// another driver, best in a transaction that does nothing else and commits at once: until then
    /// other migrations wait, and so do clients that use a table which a step has changed.
    ///
    /// Fails with [`Error::is_invalid`] over a connection without an open transaction, or in one
    /// that is not READ COMMITTED; nothing is changed then. Fails with SQLSTATE 55P03 after 200 ms
    /// if an open transaction blocks a step: roll back, and retry after a while, as
    /// [`migrate`](crate::migrate) does automatically for a minute. Fails as
    /// [`migrate`](crate::migrate) does on a server or a schema that this version does not support.
    ///
    /// ```no_run
    /// # async fn example(mut connection: tokio_postgres::Client)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let tx = connection.transaction().await?;
    /// posthaste::Client::new(&tx).migrate().await?; // with sqlx `&mut *tx`: see Executor
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn migrate(&mut self) -> Result<MigrationReport, Error> {
        migrate::migrate_within(&mut self.0, migrate::CANNOT_MIGRATE).await
    }

    /// Counts jobs without reading them: in a few milliseconds even for millions of jobs, while a
    /// worker with [`Config::maintenance`](crate::Config::maintenance) runs. Without one it reads
    /// the jobs that have come since the last one ended.
    ///
    /// Call it outside a transaction: with an old snapshot, jobs that have moved since may be
    /// missed.
    ///
    /// ```no_run
    /// # async fn example(client: tokio_postgres::Client) -> Result<(), posthaste::Error> {
    /// let counters = posthaste::Client::new(&client).counters().await?;
    /// let waiting: i64 = counters.jobs.iter().map(|of| of.available).sum();
    /// let longest = counters.oldest.iter().map(|of| of.seconds).fold(0.0, f64::max);
    /// println!("{waiting} jobs wait, the next of them for up to {longest} s");
    /// # Ok(()) }
    /// ```
    pub async fn counters(&mut self) -> Result<Counters, Error> {
        store::counters(&mut self.0, None).await
    }

    /// Counts jobs as [`counters`](Self::counters) does, but is also fast right after an INSERT of
    /// millions: it reads at most approximately this many of the jobs that no worker has counted
    /// yet. If there are more, [`Counters::is_partial`] is true, and gauges are too low until the
    /// leader has counted them.
    pub async fn counters_within(&mut self, most: u32) -> Result<Counters, Error> {
        store::counters(&mut self.0, Some(most)).await
    }

    /// Returns how many jobs the maintenance leader has not counted yet, at most `most`; 0 if there
    /// is no leader. While there are very many, as after a large INSERT,
    /// [`counters`](Self::counters) is slow. A program that reads counters often calls this first
    /// and waits, but not forever: a few jobs may stay uncounted, or more if the jobs of one queue
    /// have thousands of names or tags.
    ///
    /// ```no_run
    /// # async fn example(client: tokio_postgres::Client) -> Result<(), posthaste::Error> {
    /// let mut jobs = posthaste::Client::new(&client);
    /// if jobs.uncounted(50_000).await? < 50_000 {
    ///     println!("{:?}", jobs.counters().await?); // takes milliseconds
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn uncounted(&mut self, most: u32) -> Result<u32, Error> {
        store::uncounted(&mut self.0, most).await
    }
}

/// Rejects invalid names of queues.
fn check_queue(queue: &str) -> Result<(), Error> {
    check_text("queue", queue, 1, 255)
}
