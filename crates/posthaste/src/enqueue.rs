//! Enqueue: one statement in the caller's transaction. This module never opens, commits or rolls
//! back a transaction.

pub(crate) mod copy;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use jiff::Timestamp;

use crate::error::Error;
use crate::executor::{Executor, Value};
use crate::job::{IntoJob, JobId, NewJob};

const ENQUEUE: &str = include_str!("store/enqueue.sql");
const ENQUEUE_NOWAIT: &str = include_str!("store/enqueue_nowait.sql");
const COPY: &str = include_str!("store/copy.sql");
const COPY_ENTER: &str = include_str!("store/copy_enter.sql");
const COPY_ROUTES: &str = include_str!("store/copy_routes.sql");
const COPY_NOTIFY: &str = include_str!("store/copy_notify.sql");
const ENQUEUE_PLAIN: &str = include_str!("store/enqueue_plain.sql");
const ENQUEUE_MANY: &str = include_str!("store/enqueue_many.sql");

/// The most rows in one statement of [`enqueue_many`]: enough to pay for the round trip, few enough
/// to stay small.
const MAX_ROWS_PER_STATEMENT: usize = 1000;
/// The most bytes of the jobs in one such statement, except for a single larger job. Postgres
/// closes the connection at a message of 1 GiB.
const MAX_BYTES_PER_STATEMENT: usize = 8 << 20;

/// Enqueues a job in the caller's transaction and returns its id. The job becomes visible to
/// workers when that transaction commits, and never if it rolls back.
///
/// The job is a value of a [kind of job](crate::JobArgs) or a [`NewJob`]. If an unfinished job
/// holds its unique key, nothing is enqueued and that job's id is returned.
///
/// ```no_run
/// # #[derive(serde::Serialize)]
/// # struct Welcome { to: String }
/// # impl posthaste::JobArgs for Welcome { const NAME: &'static str = "mail.welcome"; }
/// # async fn example(mut client: tokio_postgres::Client)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let tx = client.transaction().await?;
/// tx.execute("INSERT INTO account (name) VALUES ($1)", &[&"Ada"]).await?;
/// posthaste::enqueue(&tx, Welcome { to: "Ada".into() }).await?;
/// tx.commit().await?; // both or neither
/// # Ok(()) }
/// ```
pub async fn enqueue<'a, E: Executor>(
    mut executor: E,
    job: impl IntoJob<'a>,
) -> Result<JobId, Error> {
    let job = job.into_job();
    let job = with_due_time(&job, Timestamp::now());
    job.check()?;
    enqueue_one(&mut executor, &job).await
}

/// Returns the job with its delay turned into the instant when it is due.
fn with_due_time(job: &NewJob, now: Timestamp) -> Cow<'_, NewJob> {
    match job.scheduled_from(now) {
        Some(scheduled) => Cow::Owned(scheduled),
        None => Cow::Borrowed(job),
    }
}

/// Enqueues a job as [`enqueue()`] does, but never waits for another transaction that is taking the
/// same unique key: it then returns `None`. Nothing was enqueued, and it is unknown whether the
/// other job will exist; the transaction stays usable.
///
/// ```no_run
/// use posthaste::{NewJob, enqueue_nowait};
///
/// # async fn example(tx: tokio_postgres::Transaction<'_>)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let refresh = NewJob::new("cache.refresh", &serde_json::json!({}))?.unique_key("cache");
/// match enqueue_nowait(&tx, &refresh).await? {
///     Some(id) => println!("job {id} will do it"),
///     None => println!("somebody is just asking for the same"),
/// }
/// # Ok(()) }
/// ```
pub async fn enqueue_nowait<'a, E: Executor>(
    mut executor: E,
    job: impl IntoJob<'a>,
) -> Result<Option<JobId>, Error> {
    let job = job.into_job();
    let job = with_due_time(&job, Timestamp::now());
    job.check()?;
    if job.unique_key.is_none() {
        return enqueue_one(&mut executor, &job).await.map(Some);
    }
    let ids = send_enqueue(&mut executor, ENQUEUE_NOWAIT, &enqueue_parameters(&job)).await?;
    Ok(ids.first().copied())
}

/// Returns the parameters of enqueue.sql.
fn enqueue_parameters(job: &NewJob) -> [Value<'_>; 11] {
    [
        Value::Text(Some(&job.name)),
        Value::Json(&job.kwargs),
        Value::Text(job.queue.as_deref()),
        Value::Integer(Some(job.priority)),
        Value::Time(job.scheduled_at),
        Value::Time(job.expires_at),
        Value::Text(Some(&job.tag)),
        Value::Text(job.unique_key.as_deref()),
        Value::Integer(job.max_attempts),
        Value::Text(job.ordering_key.as_deref()),
        Value::Text(job.trace.as_deref()),
    ]
}

async fn enqueue_one<E: Executor>(executor: &mut E, job: &NewJob) -> Result<JobId, Error> {
    let values = enqueue_parameters(job);
    let mut ids = Vec::new();
    if E::PREPARES && job.is_plain() {
        ids = send_enqueue(executor, ENQUEUE_PLAIN, &values[..2]).await?;
    }
    if ids.is_empty() {
        ids = send_enqueue(executor, ENQUEUE, &values).await?;
    }
    ids.pop()
        .ok_or_else(|| Error::invalid("id", "the database returned none"))
}

async fn send_enqueue<E: Executor>(
    executor: &mut E,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<JobId>, Error> {
    let ids = executor
        .run(sql, values)
        .await
        .map_err(Error::driver("cannot enqueue"))?;
    Ok(ids.into_iter().map(JobId).collect())
}

/// Enqueues many jobs in the caller's transaction and returns their ids in the same order. One
/// statement enqueues at most a thousand of them, or approximately 8 MiB.
///
/// Jobs with unique keys are enqueued one by one, because each key has to be checked, in the order
/// of their keys: two such calls with the same keys may wait for each other, but do not deadlock.
/// The exception is a job with a unique key that shares its ordering key with other jobs of the
/// call: the jobs of that ordering key are enqueued one by one in the given order. Such a call may
/// deadlock with another one that takes the same unique keys, and the database ends one of them.
pub async fn enqueue_many<'a, E, J>(mut executor: E, jobs: J) -> Result<Vec<JobId>, Error>
where
    E: Executor,
    J: IntoIterator<Item: IntoJob<'a>>,
{
    let now = Timestamp::now();
    let jobs: Vec<Cow<'a, NewJob>> = jobs.into_iter().map(IntoJob::into_job).collect();
    let jobs: Vec<Cow<'_, NewJob>> = jobs.iter().map(|job| with_due_time(job, now)).collect();
    jobs.iter().try_for_each(|job| job.check())?;
    let ordered = order_sensitive_indices(&jobs);
    let numbered = jobs.iter().map(|job| &**job).enumerate();
    let (ordered, free): (Vec<_>, Vec<_>) =
        numbered.partition(|(place, _)| ordered.contains(place));
    let (plain, mut keyed): (Vec<_>, Vec<_>) = free
        .into_iter()
        .partition(|(_, job)| job.unique_key.is_none());
    let (places, plain): (Vec<usize>, Vec<&NewJob>) = plain.into_iter().unzip();
    let mut ids = vec![JobId(0); jobs.len()];
    let mut places = places.into_iter();
    for chunk in split_into_statements(&plain) {
        let sent = match chunk {
            [only] => vec![enqueue_one(&mut executor, only).await?],
            _ => send_enqueue(&mut executor, ENQUEUE_MANY, &column_arrays(chunk)).await?,
        };
        for (id, place) in sent.into_iter().zip(&mut places) {
            ids[place] = id;
        }
    }
    keyed.sort_by_key(|(_, job)| &job.unique_key);
    for (place, job) in ordered.into_iter().chain(keyed) {
        ids[place] = enqueue_one(&mut executor, job).await?;
    }
    Ok(ids)
}

/// Returns the indices of jobs whose order matters: those of an ordering key under which a job with
/// a unique key must run before or after another one, and all jobs with the unique keys of these,
/// of which the first is to hold the key.
fn order_sensitive_indices(jobs: &[Cow<'_, NewJob>]) -> HashSet<usize> {
    let mut lines: HashMap<&str, (usize, bool)> = HashMap::new();
    for job in jobs {
        if let Some(key) = &job.ordering_key {
            let (count, is_keyed) = lines.entry(key.as_str()).or_default();
            *count += 1;
            *is_keyed |= job.unique_key.is_some();
        }
    }
    lines.retain(|_, (count, is_keyed)| *count > 1 && *is_keyed);
    let is_in_line = |job: &NewJob| {
        let line = job.ordering_key.as_deref();
        line.is_some_and(|key| lines.contains_key(key))
    };
    let in_line = jobs.iter().filter(|job| is_in_line(job));
    let held: HashSet<&str> = in_line
        .filter_map(|job| job.unique_key.as_deref())
        .collect();
    let counts = |job: &NewJob| {
        let key = job.unique_key.as_deref();
        is_in_line(job) || key.is_some_and(|key| held.contains(key))
    };
    let numbered = jobs.iter().enumerate();
    numbered
        .filter(|(_, job)| counts(job))
        .map(|(place, _)| place)
        .collect()
}

/// Splits the jobs, in order, by number and size.
fn split_into_statements<'s, 'j>(jobs: &'s [&'j NewJob]) -> impl Iterator<Item = &'s [&'j NewJob]> {
    let mut rest = jobs;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fitting = rest.iter().take(MAX_ROWS_PER_STATEMENT).take_while(|job| {
            bytes += job.bytes();
            bytes <= MAX_BYTES_PER_STATEMENT
        });
        let count = fitting.count().max(1);
        let chunk = rest.get(..count)?;
        rest = &rest[count..];
        Some(chunk)
    })
}

fn column_arrays<'j>(jobs: &[&'j NewJob]) -> [Value<'j>; 10] {
    fn column_array<'j, T>(jobs: &[&'j NewJob], of: impl Fn(&'j NewJob) -> T) -> Vec<T> {
        jobs.iter().map(|job| of(job)).collect()
    }
    [
        Value::Texts(column_array(jobs, |job| Some(job.name.as_str()))),
        Value::Texts(column_array(jobs, |job| Some(job.kwargs.as_str()))),
        Value::Texts(column_array(jobs, |job| job.queue.as_deref())),
        Value::Integers(column_array(jobs, |job| Some(job.priority))),
        Value::Times(column_array(jobs, |job| job.scheduled_at)),
        Value::Times(column_array(jobs, |job| job.expires_at)),
        Value::Texts(column_array(jobs, |job| Some(job.tag.as_str()))),
        Value::Integers(column_array(jobs, |job| job.max_attempts)),
        Value::Texts(column_array(jobs, |job| job.ordering_key.as_deref())),
        Value::Texts(column_array(jobs, |job| job.trace.as_deref())),
    ]
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES_PER_STATEMENT, MAX_ROWS_PER_STATEMENT, NewJob, split_into_statements};

    fn jobs(count: usize, bytes: usize) -> Vec<NewJob> {
        let kwargs = serde_json::json!({ "a": "x".repeat(bytes) });
        vec![NewJob::new("x", &kwargs).expect("a job"); count]
    }

    fn lengths(jobs: &[NewJob]) -> Vec<usize> {
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        split_into_statements(&jobs).map(<[&NewJob]>::len).collect()
    }

    #[test]
    fn small_jobs_are_sent_in_batches_of_a_thousand() {
        assert_eq!(
            lengths(&jobs(2 * MAX_ROWS_PER_STATEMENT + 1, 1)),
            [MAX_ROWS_PER_STATEMENT, MAX_ROWS_PER_STATEMENT, 1]
        );
        assert_eq!(lengths(&[]), [0; 0]);
    }

    #[test]
    fn large_jobs_are_split_by_statement_size() {
        let jobs = jobs(20, (1 << 20) - 100);
        assert_eq!(lengths(&jobs), [8, 8, 4]);
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        for chunk in split_into_statements(&jobs) {
            assert!(chunk.iter().map(|job| job.bytes()).sum::<usize>() <= MAX_BYTES_PER_STATEMENT);
        }
    }
}
