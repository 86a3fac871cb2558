//! A transaction of the console: bounded in time, bound to names of its own.

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::types::Type;

use super::StoreError;

/// The longest wait for a connection of the pool.
const WAIT: Duration = Duration::from_secs(2);
/// The longest wait for the first answer on one.
const BEGIN: Duration = Duration::from_secs(10);
const READ_ONLY: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";
/// How long a statement of a page may take.
const PAGE: &str = "2s";
/// How long one may whose answer all pages share: ten million jobs that nobody has counted yet are
/// counted in a few seconds.
const SHARED: &str = "10s";
/// How long one of an action may.
const ACTION: &str = "30s";

/// An open transaction. One that is dropped before its end takes its connection along: nobody
/// knows what that is at.
pub(crate) struct Session(Option<Object>);

impl Session {
    /// Read-only.
    pub(crate) async fn read(pool: &Pool) -> Result<Self, StoreError> {
        Self::begin(pool, READ_ONLY, PAGE).await
    }

    /// For the snapshot that all pages share.
    pub(crate) async fn read_shared(pool: &Pool) -> Result<Self, StoreError> {
        Self::begin(pool, READ_ONLY, SHARED).await
    }

    /// To act.
    pub(crate) async fn act(pool: &Pool) -> Result<Self, StoreError> {
        Self::begin(pool, "BEGIN ISOLATION LEVEL READ COMMITTED", ACTION).await
    }

    async fn begin(pool: &Pool, begin: &'static str, bound: &str) -> Result<Self, StoreError> {
        let object = tokio::time::timeout(WAIT, pool.get()).await;
        let object = object.map_err(|_| StoreError::Late("two seconds"))??;
        let session = Self(Some(object));
        let client = session.client()?;
        let bind = include_str!("session.sql");
        let bound: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&bound, Type::TEXT)];
        // They go out together. One that is half open never answers.
        let begun = async {
            tokio::try_join!(
                client.batch_execute(begin),
                client.query_typed(bind, &bound)
            )
        };
        let begun = tokio::time::timeout(BEGIN, begun).await;
        begun.map_err(|_| StoreError::Late("ten seconds"))??;
        Ok(session)
    }

    /// The connection.
    pub(crate) fn client(&self) -> Result<&tokio_postgres::Client, StoreError> {
        let object = self.0.as_ref();
        let ended = || StoreError::Failed("the transaction has ended".to_owned());
        Ok(object.ok_or_else(ended)?)
    }

    /// Remembers this point, to which [`undo`](Self::undo) goes back after a statement that failed.
    pub(crate) async fn mark(&self) -> Result<(), StoreError> {
        Ok(self.client()?.batch_execute("SAVEPOINT mark").await?)
    }

    /// Goes back to the last [`mark`](Self::mark).
    pub(crate) async fn undo(&self) -> Result<(), StoreError> {
        Ok(self.client()?.batch_execute("ROLLBACK TO mark").await?)
    }

    /// What operators do, in this transaction. No statement gets a name, so any pooler will do.
    pub(crate) fn jobs(&self) -> Result<posthaste::Client<&tokio_postgres::Client>, StoreError> {
        Ok(posthaste::Client::new(self.client()?))
    }

    /// Commits.
    pub(crate) async fn end(mut self) -> Result<(), StoreError> {
        self.client()?.batch_execute("COMMIT").await?;
        // It goes back to the pool.
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
