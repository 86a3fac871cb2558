//! Synced tables, problems of their indexes, and re-indexes.

use std::collections::BTreeMap;

use deadpool_postgres::Pool;
use posthaste_observe::Snapshot;
use posthaste_sync::{Reindex, ReindexPlan, SyncLag};
use tokio_postgres::Row;

use super::{Session, StoreError};

/// A synced table.
pub(crate) struct Synced {
    pub(crate) name: String,
    pub(crate) relation: String,
    pub(crate) key: String,
    /// Seconds from a change until its job is due.
    pub(crate) delay: f64,
    pub(crate) columns: Vec<String>,
    /// The last audit; `None` if there was none.
    pub(crate) audited: Option<AuditResult>,
}

/// The result of the last audit of a synced table.
pub(crate) struct AuditResult {
    /// Its age, in seconds.
    pub(crate) seconds: f64,
    pub(crate) rows: i64,
    pub(crate) documents: i64,
    pub(crate) differed: i64,
    pub(crate) repaired: i64,
    /// Whether contents were compared too.
    pub(crate) contents: bool,
}

pub(crate) async fn read_syncs(pool: &Pool) -> Result<Vec<Synced>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let sql = include_str!("synced.sql");
    let rows = session.client()?.query_typed(sql, &[]).await?;
    session.commit().await?;
    let read: Result<Vec<Synced>, _> = rows.iter().map(synced_from_row).collect();
    Ok(read?)
}

fn synced_from_row(row: &Row) -> Result<Synced, tokio_postgres::Error> {
    Ok(Synced {
        name: row.try_get("name")?,
        relation: row.try_get("relation")?,
        key: row.try_get("key")?,
        delay: row.try_get("delay")?,
        columns: row.try_get("columns")?,
        audited: match row.try_get("audited")? {
            None => None,
            Some(seconds) => Some(AuditResult {
                seconds,
                rows: row.try_get("rows")?,
                documents: row.try_get("documents")?,
                differed: row.try_get("differed")?,
                repaired: row.try_get("repaired")?,
                contents: row.try_get("contents")?,
            }),
        },
    })
}

/// Returns the lag and the problems of the indexes of this snapshot, by their names.
pub(crate) async fn read_lags(
    pool: &Pool,
    snapshot: &Snapshot,
) -> Result<BTreeMap<String, SyncLag>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let mut snapshot = snapshot.clone();
    snapshot.read_syncs(session.client()?).await?;
    session.commit().await?;
    let syncs = snapshot.syncs.into_iter();
    Ok(syncs
        .filter_map(|one| Some((one.name, one.behind?)))
        .collect())
}

/// Returns the plan of a re-index.
pub(crate) async fn plan_reindex(
    pool: &Pool,
    table: &str,
    reindex: &Reindex,
) -> Result<ReindexPlan, StoreError> {
    let session = Session::begin_read(pool).await?;
    let plan = reindex.plan(session.client()?, table).await;
    let plan = plan.map_err(StoreError::from_selection)?;
    session.commit().await?;
    Ok(plan)
}

/// Begins a re-index, and returns how many documents are to be checked.
pub(crate) async fn begin_reindex(
    pool: &Pool,
    table: &str,
    reindex: &Reindex,
) -> Result<usize, StoreError> {
    let session = Session::begin_action(pool).await?;
    let client = session.client()?;
    let plan = reindex.plan(client, table).await;
    let plan = plan.map_err(StoreError::from_selection)?;
    let jobs = plan
        .begin(client)
        .await
        .map_err(StoreError::from_selection)?;
    session.commit().await?;
    Ok(usize::try_from(jobs).unwrap_or(usize::MAX))
}
