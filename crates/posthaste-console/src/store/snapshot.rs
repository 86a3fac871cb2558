//! Reads the snapshot that all pages share, and actions by filter, in one transaction.

use deadpool_postgres::Pool;
use posthaste_observe::Snapshot;

use super::{Session, StoreError};
use crate::action::Action;

/// Actions by filter that are read with the snapshot.
const ACTIONS: i64 = 20;

/// The data that all pages share.
pub(crate) struct Shared {
    pub(crate) snapshot: Snapshot,
    pub(crate) actions: Vec<Action>,
    /// Whether the console's role has the rights of a worker, which all actions need.
    pub(crate) role_may_act: bool,
}

pub(crate) async fn read(pool: &Pool) -> Result<Shared, StoreError> {
    let session = Session::read_shared(pool).await?;
    let snapshot = Snapshot::read(session.client()?).await?;
    let actions = super::actions(&session, ACTIONS).await?;
    let sql = "SELECT pg_catalog.has_table_privilege('posthaste.queue', 'UPDATE')";
    let row = session.client()?.query_typed_one(sql, &[]).await?;
    let role_may_act = row.try_get(0)?;
    session.end().await?;
    Ok(Shared {
        snapshot,
        actions,
        role_may_act,
    })
}
