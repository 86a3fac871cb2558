//! The snapshot that all pages share, and actions by filter, in one transaction.

use deadpool_postgres::Pool;
use posthaste_observe::Snapshot;

use super::{Session, StoreError};
use crate::action::Action;

/// Actions by filter that are shown as they go on.
const ACTIONS: i64 = 20;

pub(crate) async fn read(pool: &Pool) -> Result<(Snapshot, Vec<Action>), StoreError> {
    let session = Session::read_shared(pool).await?;
    let snapshot = Snapshot::read(session.client()?).await?;
    let actions = super::actions(&session, ACTIONS).await?;
    session.end().await?;
    Ok((snapshot, actions))
}
