//! The settings of the database, and what is installed.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Session, StoreError};

/// The data of the page of settings.
pub(crate) struct Installation {
    pub(crate) steps: Vec<SchemaStep>,
    /// Retention of failed attempts, and of received ids, in seconds.
    pub(crate) keep_attempts: f64,
    pub(crate) keep_inbox: f64,
    pub(crate) log: SegmentLog,
}

/// A part of the schema that was applied.
pub(crate) struct SchemaStep {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) applied_at: Timestamp,
}

/// The number of segments, and their size.
#[derive(Default)]
pub(crate) struct SegmentLog {
    pub(crate) ready: i64,
    pub(crate) sealed: i64,
    pub(crate) overflow: i64,
    pub(crate) scheduled: i64,
    pub(crate) bytes: i64,
    pub(crate) dead_bytes: i64,
}

pub(crate) async fn read_installation(pool: &Pool) -> Result<Installation, StoreError> {
    let session = Session::begin_read(pool).await?;
    let client = session.client()?;
    let steps = client.query_typed(include_str!("steps.sql"), &[]).await?;
    let retention = client
        .query_typed(include_str!("retention.sql"), &[])
        .await?;
    let log = client.query_typed(include_str!("log.sql"), &[]).await?;
    let steps: Result<Vec<SchemaStep>, _> = steps.iter().map(schema_step_from_row).collect();
    let second = |column: &str| retention.first().map(|row| row.try_get(column)).transpose();
    let installed = Installation {
        steps: steps?,
        keep_attempts: second("attempts")?.unwrap_or_default(),
        keep_inbox: second("inbox")?.unwrap_or_default(),
        log: log
            .first()
            .map(segment_log_from_row)
            .transpose()?
            .unwrap_or_default(),
    };
    session.commit().await?;
    Ok(installed)
}

fn schema_step_from_row(row: &Row) -> Result<SchemaStep, tokio_postgres::Error> {
    Ok(SchemaStep {
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        applied_at: row.try_get("applied_at")?,
    })
}

fn segment_log_from_row(row: &Row) -> Result<SegmentLog, tokio_postgres::Error> {
    Ok(SegmentLog {
        ready: row.try_get("ready")?,
        sealed: row.try_get("sealed")?,
        overflow: row.try_get("overflow")?,
        scheduled: row.try_get("scheduled")?,
        bytes: row.try_get("bytes")?,
        dead_bytes: row.try_get("dead_bytes")?,
    })
}
