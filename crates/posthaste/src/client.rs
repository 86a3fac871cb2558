//! What operators and programs ask of jobs and queues, in a transaction of
//! any driver.

use std::time::Duration;

use uuid::Uuid;

use crate::counters::Counters;
use crate::error::Error;
use crate::executor::Executor;
use crate::history::{Failure, FoundJob, ListedJob};
use crate::job::{JobId, State, text};
use crate::store::client::{self as store, Filter, Rate};
use crate::store::migrate::{self, MigrationReport};

/// States of jobs that are listed: all but done.
const LISTED: [State; 11] = [
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
const KEPT: [State; 4] = [
    State::Dead,
    State::Discarded,
    State::Expired,
    State::Cancelled,
];
/// States of jobs whose wait a retry ends.
const WAITING: [State; 3] = [State::Scheduled, State::Retrying, State::Quarantined];

/// The longest retention of completed jobs.
const LONGEST_KEPT: Duration = Duration::from_secs(3_660 * 86_400);

/// Looks for jobs, lists, cancels, retries and redrives them; pauses and limits queues; counts;
/// migrates: what operators do, in Rust and over any [`Executor`].
///
/// Each call is one statement, but for [`migrate`](Self::migrate), which needs a transaction. Over
/// a connection it is a transaction of its own; over a transaction it takes effect when that
/// commits, and never if it rolls back. [`cancel`](Self::cancel) and [`retry`](Self::retry) need
/// READ COMMITTED, and keep claims or the promotion of scheduled jobs waiting until the transaction
/// ends: give them one of their own.
///
/// Each call fails as its driver fails ([`Error::is_connection`], [`Error::sqlstate`]), or when the
/// database is not migrated. What is known to be refused is refused before anything is sent
/// ([`Error::is_invalid`]).
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
    /// A client that runs its statements in this transaction or over this connection.
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

    /// Looks for a job. `None`: it is not known any more, or never was.
    ///
    /// A job that is done is found while its segment lives, and for as long as its queue keeps done
    /// jobs ([`keep`](Self::keep)).
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

    /// Lists jobs that are not done, the newest first unless the filter says otherwise; 50 of them
    /// unless it has a limit. It reads all jobs of the store: [`counters`](Self::counters) is the
    /// fast source of numbers.
    ///
    /// Fails with [`Error::is_invalid`] where the filter's state is [`State::Completed`].
    pub async fn list(&mut self, filter: &Filter) -> Result<Vec<ListedJob>, Error> {
        filter.check(&LISTED)?;
        store::list(&mut self.0, filter).await
    }

    /// Lists jobs that ended without completing (dead, discarded, expired, cancelled), those
    /// first that were given up last unless the filter says otherwise; 50 of them unless it has a
    /// limit. Each is what [`find`](Self::find) says of it.
    ///
    /// Fails with [`Error::is_invalid`] where the filter's state is another.
    pub async fn dead(&mut self, filter: &Filter) -> Result<Vec<FoundJob>, Error> {
        filter.check(&KEPT)?;
        store::dead(&mut self.0, filter).await
    }

    /// Reads the last thousand failed attempts of a job, the first of them first, whatever became
    /// of it. They are kept for a week, unless `posthaste.setting` says otherwise.
    pub async fn failures(&mut self, id: JobId) -> Result<Vec<Failure>, Error> {
        store::failures(&mut self.0, id).await
    }

    /// Cancels jobs: one that waits is kept as cancelled and never runs; of one that runs, the
    /// worker tells the handler, and ends it five seconds later.
    ///
    /// Answers for each job that is not done, in the order of their numbers:
    /// - [`Cancelled`](State::Cancelled): it never runs.
    /// - [`Running`](State::Running): its worker is asked to end it. If it is done first, it is
    ///   done.
    /// - [`Dead`](State::Dead), [`Discarded`](State::Discarded) or [`Expired`](State::Expired): how
    ///   it had ended before.
    /// - [`Available`](State::Available): it still waits. One call cancels in two hundred lanes at
    ///   most, so name it again in the next transaction.
    ///
    /// It reads the slots to find the jobs: name many in one call.
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

    /// Lets jobs run now that wait for their time, be they scheduled or to be retried; they
    /// keep the attempts that were counted. Answers where each job that is known is then, in the
    /// order of their numbers: [`Available`](State::Available), [`Blocked`](State::Blocked) (until
    /// its turn), or where it stays.
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

    /// As [`retry`](Self::retry), of the jobs that this filter names: those first that were due
    /// first, a thousand unless it has a limit.
    ///
    /// Fails with [`Error::is_invalid`] where the filter's state is not
    /// [`Scheduled`](State::Scheduled), [`Retrying`](State::Retrying) or
    /// [`Quarantined`](State::Quarantined).
    pub async fn retry_where(&mut self, filter: &Filter) -> Result<Vec<(JobId, State)>, Error> {
        filter.check(&WAITING)?;
        store::retry(&mut self.0, filter).await
    }

    /// Sends jobs that were given up to work again and returns those that it sent, in the order of
    /// their numbers. A job keeps its id and its delivery id, has all its attempts before it again,
    /// and expires 30 days from now at the earliest. One whose unique key another job now holds
    /// stays where it is, as does one that somebody else redrives at the moment.
    pub async fn redrive(&mut self, ids: &[JobId]) -> Result<Vec<JobId>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let these = Filter::new().ids(ids.iter().copied());
        store::redrive(&mut self.0, &these).await
    }

    /// As [`redrive`](Self::redrive), of the jobs that this filter names: those first that were
    /// given up first, a thousand unless it has a limit.
    ///
    /// Fails with [`Error::is_invalid`] where the filter's state is not [`Dead`](State::Dead),
    /// [`Discarded`](State::Discarded), [`Expired`](State::Expired) or
    /// [`Cancelled`](State::Cancelled).
    pub async fn redrive_where(&mut self, filter: &Filter) -> Result<Vec<JobId>, Error> {
        filter.check(&KEPT)?;
        store::redrive(&mut self.0, filter).await
    }

    /// Stops claims from a queue, from the commit on, by all workers; running jobs and enqueues go
    /// on. False: it was paused already.
    pub async fn pause(&mut self, queue: &str) -> Result<bool, Error> {
        check_queue(queue)?;
        store::pause(&mut self.0, queue).await
    }

    /// Lets workers claim from a queue again. False: it was not paused.
    pub async fn resume(&mut self, queue: &str) -> Result<bool, Error> {
        check_queue(queue)?;
        store::resume(&mut self.0, queue).await
    }

    /// Limits how many jobs of a queue all workers together claim; `None` takes the limit away. In
    /// any time `t` at most `burst + t * jobs / per` are handed out, retries included, quarantined
    /// jobs not. Setting a rate allows a burst at once.
    ///
    /// Fails with [`Error::is_invalid`] where the rate is beyond its bounds, and with the SQLSTATE
    /// 54000 when 64 queues have a rate already.
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

    /// Keeps done jobs of a queue for this long at least, so that [`find`](Self::find) finds them:
    /// a microsecond to 3,660 days; `None`: not beyond what the store needs. False: it was so
    /// before.
    ///
    /// Fails with [`Error::is_invalid`] where the time is beyond these bounds.
    pub async fn keep(&mut self, queue: &str, keep: Option<Duration>) -> Result<bool, Error> {
        check_queue(queue)?;
        if keep.is_some_and(|keep| keep.as_micros() < 1 || keep > LONGEST_KEPT) {
            let reason = "must lie between a microsecond and 3660 days";
            return Err(Error::invalid("keep", reason));
        }
        store::keep(&mut self.0, queue, keep).await
    }

    /// Confirms the effect of a job that awaits it, best in the transaction of that effect. True:
    /// the id is of this database, and a second confirmation does nothing. False: it is not, or was
    /// given to a row of `posthaste.outbox` that is done.
    pub async fn confirm(&mut self, delivery_id: Uuid) -> Result<bool, Error> {
        store::confirm(&mut self.0, delivery_id).await
    }

    /// Brings the schema up to date in this transaction, as [`migrate`](crate::migrate) does in one
    /// of its own: what it did stands when the transaction commits. For programs that migrate over
    /// their own driver, best in a transaction of its own that commits at once: until then other
    /// migrations wait, and so does who wants a table that a step has changed.
    ///
    /// Fails with [`Error::is_invalid`] over a connection without an open transaction, or in one
    /// that is not READ COMMITTED; nothing is done then. Fails with SQLSTATE 55P03 after 200 ms
    /// where an open transaction blocks a step: roll back, and try again after a while,
    /// as [`migrate`](crate::migrate) does by itself for a minute. Fails as
    /// [`migrate`](crate::migrate) does on a server or a schema that is not for this version.
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
        migrate::within(&mut self.0, migrate::CANNOT).await
    }

    /// Counts jobs without reading them: a few milliseconds where millions wait, while a worker
    /// with [`Config::maintenance`](crate::Config::maintenance) runs. Without one it reads what has
    /// come since the last one ended.
    ///
    /// Call it outside of a transaction: in one whose snapshot is old, jobs that moved meanwhile
    /// may be missed.
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

    /// As [`counters`](Self::counters), quickly also right after an INSERT of millions: of the jobs
    /// that no worker has counted yet, at most about so many are read. Where there are more,
    /// [`Counters::is_partial`] says so, and gauges are too low until the leader has counted them.
    pub async fn counters_within(&mut self, most: u32) -> Result<Counters, Error> {
        store::counters(&mut self.0, Some(most)).await
    }

    /// How many jobs the worker that leads maintenance has not counted yet, at most `most`; 0 where
    /// none leads. While there are very many, as after an INSERT of them,
    /// [`counters`](Self::counters) is slow. A program that reads them often asks this first, and
    /// waits a while, but not for ever: a few may stay uncounted, or more where the jobs of one
    /// queue have thousands of names or tags.
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

/// What no queue can be called.
fn check_queue(queue: &str) -> Result<(), Error> {
    text("queue", queue, 1, 255)
}
