//! 1. Enqueue: one statement on the caller's own transaction. Nothing here opens, commits or rolls back.

use std::future::Future;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::error::Error;
use crate::job::{JobId, NewJob};
use crate::store::json_text::JsonText;

const ENQUEUE: &str = include_str!("store/enqueue.sql");
const ENQUEUE_PLAIN: &str = include_str!("store/enqueue_plain.sql");
const ENQUEUE_MANY: &str = include_str!("store/enqueue_many.sql");

/// Rows sent in one statement by [`enqueue_many`]: enough to pay for the round trip, few enough to stay small.
const MANY: usize = 1000;
/// Bytes of the jobs in one such statement, but for one job that is larger. Postgres cuts the connection at a message of 1 GiB.
const MANY_BYTES: usize = 8 << 20;

/// A parameter and its type; typed parameters need no preparation.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Something that runs a statement in the caller's transaction: a transaction or client of tokio-postgres or deadpool-postgres.
///
/// A client without an open transaction enqueues in a transaction of its own, at once.
pub trait Executor: Sync {
    /// Whether a statement that is sent again is not planned again. Where it is, a short statement is worth more than a fast one.
    const PREPARES: bool;

    /// Runs one statement and returns its rows.
    fn fetch(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send;
}

/// Connections of the bare driver have no cache of prepared statements: an unnamed statement in one round trip.
macro_rules! unprepared {
    ($executor:ty) => {
        impl Executor for $executor {
            const PREPARES: bool = false;

            async fn fetch(
                &self,
                sql: &'static str,
                parameters: &[Parameter<'_>],
            ) -> Result<Vec<Row>, tokio_postgres::Error> {
                self.query_typed(sql, parameters).await
            }
        }
    };
}
unprepared!(tokio_postgres::Client);
unprepared!(tokio_postgres::Transaction<'_>);

/// Pooled connections keep prepared statements.
macro_rules! prepared {
    ($executor:ty) => {
        impl Executor for $executor {
            const PREPARES: bool = true;

            async fn fetch(
                &self,
                sql: &'static str,
                parameters: &[Parameter<'_>],
            ) -> Result<Vec<Row>, tokio_postgres::Error> {
                let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = self.prepare_typed_cached(sql, &types).await?;
                let values: Vec<&(dyn ToSql + Sync)> =
                    parameters.iter().map(|(value, _)| *value).collect();
                self.query(&statement, &values).await
            }
        }
    };
}
prepared!(deadpool_postgres::ClientWrapper);
prepared!(deadpool_postgres::Client);
prepared!(deadpool_postgres::Transaction<'_>);

/// Enqueues a job in the caller's transaction and returns its id. It becomes visible to workers when that transaction commits, and never if it
/// rolls back.
///
/// With a unique key that an unfinished job holds, nothing is enqueued and that job's id is returned.
pub async fn enqueue<E: Executor>(executor: &E, job: &NewJob) -> Result<JobId, Error> {
    job.check()?;
    let kwargs = JsonText(&job.kwargs);
    let all: [Parameter<'_>; 9] = [
        (&job.name, Type::TEXT),
        (&kwargs, Type::JSONB),
        (&job.queue, Type::TEXT),
        (&job.priority, Type::INT4),
        (&job.scheduled_at, Type::TIMESTAMPTZ),
        (&job.expires_at, Type::TIMESTAMPTZ),
        (&job.tag, Type::TEXT),
        (&job.unique_key, Type::TEXT),
        (&job.max_attempts, Type::INT4),
    ];
    let send = async |sql, parameters| {
        let rows = executor.fetch(sql, parameters).await;
        rows.map_err(Error::postgres("cannot enqueue"))
    };
    let mut rows = Vec::new();
    if E::PREPARES && job.is_plain() {
        rows = send(ENQUEUE_PLAIN, &all[..2]).await?;
    }
    if rows.is_empty() {
        rows = send(ENQUEUE, &all[..]).await?;
    }
    id(rows.first())
}

/// Enqueues many jobs in the caller's transaction and returns their ids in the same order; at most a thousand of them, or about
/// 8 MiB, a statement.
pub async fn enqueue_many<E: Executor>(executor: &E, jobs: &[NewJob]) -> Result<Vec<JobId>, Error> {
    jobs.iter().try_for_each(NewJob::check)?;
    let mut ids = Vec::with_capacity(jobs.len());
    // A run of jobs without unique keys goes out together; a job with one goes alone, because its key has to be looked at.
    for run in jobs.chunk_by(|a, b| a.unique_key.is_none() && b.unique_key.is_none()) {
        if let [only] = run {
            ids.push(enqueue(executor, only).await?);
            continue;
        }
        for chunk in chunks(run) {
            ids.extend(enqueue_chunk(executor, chunk).await?);
        }
    }
    Ok(ids)
}

/// The jobs in order, cut by their number and by their size.
fn chunks(jobs: &[NewJob]) -> impl Iterator<Item = &[NewJob]> {
    let mut rest = jobs;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fitting = rest.iter().take(MANY).take_while(|job| {
            bytes += job.bytes();
            bytes <= MANY_BYTES
        });
        let count = fitting.count().max(1);
        let chunk = rest.get(..count)?;
        rest = &rest[count..];
        Some(chunk)
    })
}

async fn enqueue_chunk<E: Executor>(executor: &E, jobs: &[NewJob]) -> Result<Vec<JobId>, Error> {
    fn column<'a, T>(jobs: &'a [NewJob], of: impl Fn(&'a NewJob) -> T) -> Vec<T> {
        jobs.iter().map(of).collect()
    }
    let rows = executor
        .fetch(
            ENQUEUE_MANY,
            &[
                (&column(jobs, |job| job.name.as_str()), Type::TEXT_ARRAY),
                (&column(jobs, |job| job.kwargs.as_str()), Type::TEXT_ARRAY),
                (&column(jobs, |job| job.queue.as_deref()), Type::TEXT_ARRAY),
                (&column(jobs, |job| job.priority), Type::INT4_ARRAY),
                (
                    &column(jobs, |job| job.scheduled_at),
                    Type::TIMESTAMPTZ_ARRAY,
                ),
                (&column(jobs, |job| job.expires_at), Type::TIMESTAMPTZ_ARRAY),
                (&column(jobs, |job| job.tag.as_str()), Type::TEXT_ARRAY),
                (&column(jobs, |job| job.max_attempts), Type::INT4_ARRAY),
            ],
        )
        .await
        .map_err(Error::postgres("cannot enqueue"))?;
    rows.iter().map(|row| id(Some(row))).collect()
}

fn id(row: Option<&Row>) -> Result<JobId, Error> {
    row.ok_or_else(|| Error::invalid("id", "the database returned none"))?
        .try_get(0)
        .map(JobId)
        .map_err(Error::postgres("cannot read the id of an enqueued job"))
}

#[cfg(test)]
mod tests {
    use super::{MANY, MANY_BYTES, NewJob, chunks};

    fn jobs(count: usize, bytes: usize) -> Vec<NewJob> {
        let kwargs = serde_json::json!({ "a": "x".repeat(bytes) });
        vec![NewJob::new("x", &kwargs).expect("a job"); count]
    }

    fn lengths(jobs: &[NewJob]) -> Vec<usize> {
        chunks(jobs).map(<[NewJob]>::len).collect()
    }

    #[test]
    fn small_jobs_are_sent_by_the_thousand() {
        assert_eq!(lengths(&jobs(2 * MANY + 1, 1)), [MANY, MANY, 1]);
        assert_eq!(lengths(&[]), [0; 0]);
    }

    #[test]
    fn no_statement_of_large_jobs_grows_beyond_its_bytes() {
        let jobs = jobs(20, (1 << 20) - 100);
        assert_eq!(lengths(&jobs), [8, 8, 4]);
        for chunk in chunks(&jobs) {
            assert!(chunk.iter().map(NewJob::bytes).sum::<usize>() <= MANY_BYTES);
        }
    }
}
