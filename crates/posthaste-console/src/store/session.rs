//! A transaction of the console: limited in time, with names that do not depend on the search path.

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::types::Type;

use super::StoreError;

/// Timeout of getting a connection from the pool.
const POOL_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of the first answer on a connection.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const BEGIN_READ_ONLY: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
/// Timeout of a statement of a page.
const PAGE_TIMEOUT: &str = "2s";
/// Timeout of a statement whose answer all pages share: ten million jobs that no worker has counted
/// yet are counted in a few seconds.
const SNAPSHOT_TIMEOUT: &str = "10s";
/// Timeout of a statement of an action.
const ACTION_TIMEOUT: &str = "30s";

/// An open transaction. If it is dropped before its end, its connection is closed, because its
/// state is unknown.
pub(crate) struct Session(Option<Object>);

impl Session {
    /// Begins a read-only transaction.
    pub(crate) async fn begin_read(pool: &Pool) -> Result<Self, StoreError> {
        Self::begin(pool, BEGIN_READ_ONLY, PAGE_TIMEOUT).await
    }

    /// Begins a read-only transaction for the snapshot that all pages share.
    pub(crate) async fn begin_shared_read(pool: &Pool) -> Result<Self, StoreError> {
        Self::begin(pool, BEGIN_READ_ONLY, SNAPSHOT_TIMEOUT).await
    }

    /// Begins a transaction of an action.
    pub(crate) async fn begin_action(pool: &Pool) -> Result<Self, StoreError> {
        Self::begin(pool, "BEGIN ISOLATION LEVEL READ COMMITTED", ACTION_TIMEOUT).await
    }

    async fn begin(pool: &Pool, begin: &'static str, bound: &str) -> Result<Self, StoreError> {
        let object = tokio::time::timeout(POOL_TIMEOUT, pool.get()).await;
        let object = object.map_err(|_| StoreError::Late("two seconds"))??;
        let session = Self(Some(object));
        let client = session.client()?;
        let bind = include_str!("session.sql");
        let bound: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&bound, Type::TEXT)];
        // Both are sent together. A half-open connection never answers.
        let begun = async {
            tokio::try_join!(
                client.batch_execute(begin),
                client.query_typed(bind, &bound)
            )
        };
        let begun = tokio::time::timeout(FIRST_ANSWER_TIMEOUT, begun).await;
        begun.map_err(|_| StoreError::Late("ten seconds"))??;
        Ok(session)
    }

    /// Returns the connection.
    pub(crate) fn client(&self) -> Result<&tokio_postgres::Client, StoreError> {
        let object = self.0.as_ref();
        let bug = || StoreError::Failed("a committed transaction was used: report this bug".into());
        Ok(object.ok_or_else(bug)?)
    }

    /// Sets a savepoint, to which [`rollback_to_savepoint`](Self::rollback_to_savepoint) returns
    /// after a statement that failed.
    pub(crate) async fn set_savepoint(&self) -> Result<(), StoreError> {
        Ok(self.client()?.batch_execute("SAVEPOINT mark").await?)
    }

    /// Rolls back to the last [`set_savepoint`](Self::set_savepoint).
    pub(crate) async fn rollback_to_savepoint(&self) -> Result<(), StoreError> {
        Ok(self.client()?.batch_execute("ROLLBACK TO mark").await?)
    }

    /// Returns a client for actions in this transaction. Statements are not named, so any pooler
    /// works.
    pub(crate) fn jobs(&self) -> Result<posthaste::Client<&tokio_postgres::Client>, StoreError> {
        Ok(posthaste::Client::new(self.client()?))
    }

    /// Commits the transaction.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        self.client()?.batch_execute("COMMIT").await?;
        // The connection returns to the pool.
        drop(self.0.take());
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
