//! Reads the snapshot that all pages share, and actions by filter, in one transaction.

use deadpool_postgres::Pool;
use posthaste_observe::Snapshot;

use super::{Session, StoreError};
use crate::action::Action;

/// Actions by filter that are read with the snapshot.
const MAX_ACTIONS: i64 = 20;

/// The data that all pages share.
pub(crate) struct SharedData {
    pub(crate) snapshot: Snapshot,
    pub(crate) actions: Vec<Action>,
    /// Whether the console's role has the rights of a worker, which all actions need.
    pub(crate) role_may_act: bool,
}

pub(crate) async fn read(pool: &Pool) -> Result<SharedData, StoreError> {
    let session = Session::begin_shared_read(pool).await?;
    let snapshot = Snapshot::read(session.client()?).await?;
    let actions = super::read_actions(&session, MAX_ACTIONS).await?;
    let sql = "SELECT pg_catalog.has_table_privilege('posthaste.queue', 'UPDATE')";
    let row = session.client()?.query_typed_one(sql, &[]).await?;
    let role_may_act = row.try_get(0)?;
    session.commit().await?;
    Ok(SharedData {
        snapshot,
        actions,
        role_may_act,
    })
}
