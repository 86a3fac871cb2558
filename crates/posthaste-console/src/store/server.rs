//! The settings of the database, and what is installed.

use deadpool_postgres::Pool;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{Session, StoreError};

/// The data of the page of settings.
pub(crate) struct Installed {
    pub(crate) steps: Vec<Step>,
    /// Retention of failed attempts, and of received ids, in seconds.
    pub(crate) keep_attempts: f64,
    pub(crate) keep_inbox: f64,
    pub(crate) log: Log,
}

/// A part of the schema that was applied.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) applied_at: Timestamp,
}

/// The number of segments, and their size.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) ready: i64,
    pub(crate) sealed: i64,
    pub(crate) overflow: i64,
    pub(crate) scheduled: i64,
    pub(crate) bytes: i64,
    pub(crate) dead_bytes: i64,
}

pub(crate) async fn installed(pool: &Pool) -> Result<Installed, StoreError> {
    let session = Session::read(pool).await?;
    let client = session.client()?;
    let steps = client.query_typed(include_str!("steps.sql"), &[]).await?;
    let kept = client
        .query_typed(include_str!("kept_for.sql"), &[])
        .await?;
    let log = client.query_typed(include_str!("log.sql"), &[]).await?;
    let steps: Result<Vec<Step>, _> = steps.iter().map(step).collect();
    let second = |column: &str| kept.first().map(|row| row.try_get(column)).transpose();
    let installed = Installed {
        steps: steps?,
        keep_attempts: second("attempts")?.unwrap_or_default(),
        keep_inbox: second("inbox")?.unwrap_or_default(),
        log: log.first().map(segments).transpose()?.unwrap_or_default(),
    };
    session.end().await?;
    Ok(installed)
}

fn step(row: &Row) -> Result<Step, tokio_postgres::Error> {
    Ok(Step {
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        applied_at: row.try_get("applied_at")?,
    })
}

fn segments(row: &Row) -> Result<Log, tokio_postgres::Error> {
    Ok(Log {
        ready: row.try_get("ready")?,
        sealed: row.try_get("sealed")?,
        overflow: row.try_get("overflow")?,
        scheduled: row.try_get("scheduled")?,
        bytes: row.try_get("bytes")?,
        dead_bytes: row.try_get("dead_bytes")?,
    })
}
