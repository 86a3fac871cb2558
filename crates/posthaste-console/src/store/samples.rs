//! Samples of queues (sql/functions/sample.sql of posthaste).

use deadpool_postgres::Pool;
use jiff::{SignedDuration, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{Session, StoreError};
use crate::chart::{Period, Sample};

/// Reads the samples of a queue, or of the whole database, in the order of their times.
pub(crate) async fn read_samples(
    pool: &Pool,
    queue: Option<&str>,
    over: Period,
    now: Timestamp,
) -> Result<Vec<Sample>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let shown = SignedDuration::from_secs_f64(over.seconds());
    let since = now.checked_sub(shown).unwrap_or(Timestamp::UNIX_EPOCH);
    let sql = include_str!("samples.sql");
    let values: [(&(dyn ToSql + Sync), Type); 3] = [
        (&over.sample_minutes(), Type::INT2),
        (&queue.unwrap_or_default(), Type::TEXT),
        (&since, Type::TIMESTAMPTZ),
    ];
    let rows = session.client()?.query_typed(sql, &values).await?;
    session.commit().await?;
    let read: Result<Vec<Sample>, _> = rows.iter().map(sample_from_row).collect();
    Ok(read?)
}

fn sample_from_row(row: &Row) -> Result<Sample, tokio_postgres::Error> {
    Ok(Sample {
        at: row.try_get("at")?,
        come: row.try_get("come")?,
        done: row.try_get("done")?,
        failed: row.try_get("failed")?,
        started: row.try_get("started")?,
        waited: row.try_get("waited")?,
        available: row.try_get("available")?,
        running: row.try_get("running")?,
        oldest: row.try_get("oldest")?,
    })
}

/// Takes the sample of this minute if the role and the database allow it.
pub(crate) async fn take_sample(pool: &Pool) -> Result<(), StoreError> {
    let session = Session::begin_action(pool).await?;
    let sql = include_str!("take_sample.sql");
    session.client()?.query_typed(sql, &[]).await?;
    session.commit().await
}
