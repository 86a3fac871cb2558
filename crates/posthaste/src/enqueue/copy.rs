//! Enqueues very many jobs by COPY. The checks, the queue and the slot of each are decided here,
//! because COPY writes directly into the table.

use std::collections::HashSet;
use std::pin::pin;

use jiff::Timestamp;
use postgres_types::{ToSql, Type};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::{Client, Transaction};

use super::{COPY, COPY_ENTER, COPY_NOTIFY, COPY_ROUTES, with_due_time};
use crate::error::Error;
use crate::job::{DEFAULT_EXPIRES_AFTER, IntoJob, NewJob};
use crate::json_text::JsonText;

/// The types of the columns of copy.sql.
const COLUMN_TYPES: [Type; 15] = [
    Type::INT2,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::INT4,
    Type::INT4,
    Type::JSONB,
    Type::TEXT,
    Type::TEXT,
    Type::INT4,
    Type::TEXT,
];
const COPY_FAILED: &str = "cannot enqueue by COPY";

/// Enqueues very many jobs, due or scheduled, in the caller's transaction by one COPY, and returns
/// their number. Jobs are taken from the iterator as they are sent, so they need not all be in
/// memory.
///
/// It returns no ids, and rejects unique keys, which have to be checked one by one
/// ([`enqueue_many`](crate::enqueue_many) does both). After a rejected job, or any other error, the
/// transaction can only be rolled back, as after a failed statement. Works in every isolation
/// level.
///
/// It takes a transaction of tokio-postgres; convert one of deadpool-postgres by `&*transaction` or
/// by coercion.
///
/// ```no_run
/// use posthaste::{NewJob, enqueue_copy};
///
/// # async fn example(mut client: tokio_postgres::Client)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let documents = (1..=1_000_000).map(|id| {
///     NewJob::new("index.document", &serde_json::json!({ "id": id })).map(|job| job.priority(100))
/// });
/// let tx = client.transaction().await?;
/// let jobs = enqueue_copy(&tx, documents.map_while(Result::ok)).await?;
/// tx.commit().await?;
/// assert_eq!(jobs, 1_000_000);
/// # Ok(()) }
/// ```
pub async fn enqueue_copy<'a, J>(transaction: &Transaction<'_>, jobs: J) -> Result<u64, Error>
where
    J: IntoIterator<Item: IntoJob<'a>>,
{
    enqueue_copy_by_client(transaction.client(), jobs).await
}

/// As [`enqueue_copy`], in the transaction that a statement of this client has begun.
pub async fn enqueue_copy_by_client<'a, J>(client: &Client, jobs: J) -> Result<u64, Error>
where
    J: IntoIterator<Item: IntoJob<'a>>,
{
    let entry = CopyDefaults::begin(client).await?;
    let mut due_queues = HashSet::new();
    let failed = || Error::postgres(COPY_FAILED);
    let sink = client.copy_in(COPY).await.map_err(failed())?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &COLUMN_TYPES));
    for job in jobs {
        let job = job.into_job();
        let job = with_due_time(&job, entry.now);
        job.check()?;
        if job.unique_key.is_some() {
            let reason = "cannot be checked by COPY; use enqueue_many";
            return Err(Error::invalid("unique_key", reason));
        }
        let due = job.scheduled_at.unwrap_or(entry.now);
        let (own_queue, own_priority) = (entry.queue(&job), job.priority);
        // A job with an ordering key is written into a lane of the leader.
        let lines_up = job.ordering_key.is_some();
        let (queue, priority) = if lines_up {
            ("", 0)
        } else {
            (own_queue, own_priority)
        };
        let slot = entry.slot(due);
        if slot == entry.ready && !due_queues.contains(queue) {
            due_queues.insert(queue.to_owned());
        }
        let row: [&(dyn ToSql + Sync); 15] = [
            &slot,
            &queue,
            &job.name,
            &priority,
            &entry.now,
            &due,
            &entry.expiry(&job, due)?,
            &job.tag,
            &job.max_attempts,
            &job.kwargs_bytes,
            &JsonText(&job.kwargs),
            &job.ordering_key,
            &lines_up.then_some(own_queue),
            &lines_up.then_some(own_priority),
            &job.trace,
        ];
        writer.as_mut().write(&row).await.map_err(failed())?;
    }
    let jobs = writer.finish().await.map_err(failed())?;
    let queues: Vec<String> = due_queues.into_iter().collect();
    client
        .query_typed(COPY_NOTIFY, &[(&queues, Type::TEXT_ARRAY)])
        .await
        .map_err(failed())?;
    Ok(jobs)
}

/// Values that are the same for all jobs of a COPY.
struct CopyDefaults {
    /// The slots of due and of scheduled jobs.
    ready: i16,
    scheduled: i16,
    now: Timestamp,
    due_by: Timestamp,
    /// (pattern, queue)
    routes: Vec<(String, String)>,
}

impl CopyDefaults {
    async fn begin(client: &Client) -> Result<Self, Error> {
        let read = async || -> Result<Self, tokio_postgres::Error> {
            let row = client.query_typed_one(COPY_ENTER, &[]).await?;
            let routes = client.query_typed(COPY_ROUTES, &[]).await?;
            let route = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
            Ok(Self {
                ready: row.try_get(0)?,
                scheduled: row.try_get(1)?,
                now: row.try_get(2)?,
                due_by: row.try_get(3)?,
                routes: routes.iter().map(route).collect::<Result<_, _>>()?,
            })
        };
        read().await.map_err(Error::postgres(COPY_FAILED))
    }

    /// Returns the slot of a job. Only a job that is due later than the promoter has polled is
    /// scheduled, also after the driver has rounded its time to a microsecond.
    fn slot(&self, due: Timestamp) -> i16 {
        if due.as_microsecond() > self.due_by.as_microsecond() + 1 {
            self.scheduled
        } else {
            self.ready
        }
    }

    fn queue<'a>(&'a self, job: &'a NewJob) -> &'a str {
        match &job.queue {
            Some(queue) => queue,
            None => queue_of_name(&self.routes, &job.name),
        }
    }

    fn expiry(&self, job: &NewJob, due: Timestamp) -> Result<Timestamp, Error> {
        match job.expires_at {
            Some(at) => Ok(at),
            None => due
                .max(self.now)
                .checked_add(DEFAULT_EXPIRES_AFTER)
                .map_err(|error| Error::invalid("scheduled_at", error.to_string())),
        }
    }
}

/// Returns the queue of a job name, as `posthaste.route_of` does: of the exact pattern, else of the
/// longest prefix, else `default`.
fn queue_of_name<'a>(routes: &'a [(String, String)], name: &str) -> &'a str {
    let rank = |pattern: &str| match pattern.strip_suffix('*') {
        _ if pattern == name => Some((true, pattern.len())),
        Some(prefix) if name.starts_with(prefix) => Some((false, pattern.len())),
        _ => None,
    };
    let fitting = routes
        .iter()
        .filter_map(|(pattern, queue)| Some((rank(pattern)?, queue.as_str())));
    fitting
        .max_by_key(|(rank, _)| *rank)
        .map_or("default", |(_, queue)| queue)
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{CopyDefaults, queue_of_name};

    #[test]
    fn the_exact_route_wins_then_the_longest_prefix_then_the_default() {
        let routes = [
            ("mail.*", "mail"),
            ("mail.bulk.*", "bulk"),
            ("mail.bulk.now", "urgent"),
        ];
        let routes = routes.map(|(pattern, queue)| (pattern.to_owned(), queue.to_owned()));
        for (name, queue) in [
            ("mail.x", "mail"),
            ("mail.bulk.x", "bulk"),
            ("mail.bulk.now", "urgent"),
            ("mail.", "mail"),
            ("mail", "default"),
            ("other", "default"),
        ] {
            assert_eq!(queue_of_name(&routes, name), queue, "{name}");
        }
        assert_eq!(
            queue_of_name(&[("*".to_owned(), "all".to_owned())], "x"),
            "all"
        );
    }

    #[test]
    fn jobs_due_before_the_promotion_horizon_are_ready_at_once() {
        let due_by = Timestamp::from_microsecond(1_000_000).expect("a time");
        let (ready, scheduled) = (1, 6);
        let entry = CopyDefaults {
            ready,
            scheduled,
            now: due_by,
            due_by,
            routes: Vec::new(),
        };
        for (nanoseconds, slot) in [(-1, ready), (0, ready), (999, ready), (2_000, scheduled)] {
            let due = due_by + SignedDuration::from_nanos(nanoseconds);
            assert_eq!(entry.slot(due), slot, "{nanoseconds}");
        }
    }
}
