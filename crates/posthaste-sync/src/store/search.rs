//! Statements of the Postgres index (sql/functions/search.sql).

use std::time::Duration;

use tokio_postgres::Row;

use super::{Connections, PooledClient, ReadFailure, query_any_server, query_primary};
use posthaste::__private::chain;
use posthaste::__private::{JsonText, Parameter, milliseconds, typed};

use crate::{IndexError, IndexedVersion, Mark, Write};

/// The most old deletions that one statement removes.
const PRUNE_BATCH: i64 = 10_000;

/// An index in `posthaste.search`, and how it converts documents to words.
pub(crate) struct SearchTable<'a> {
    pub(crate) pool: &'a Connections,
    pub(crate) index: &'a str,
    pub(crate) language: &'a str,
    pub(crate) weights: &'a str,
}

/// The reason why documents were not written.
pub(crate) enum WriteFailure {
    /// One of the documents cannot be written.
    Rejected(String),
    /// One of the documents can never be written.
    TooLarge(String),
    /// The database is not available.
    IndexError(IndexError),
}

impl SearchTable<'_> {
    /// Returns for each write whether it was accepted.
    pub(crate) async fn write(&self, writes: &[Write]) -> Result<Vec<bool>, WriteFailure> {
        let ids: Vec<&str> = writes.iter().map(|one| &*one.id).collect();
        let versions: Vec<i64> = writes.iter().map(|one| one.mark.version).collect();
        let passes: Vec<i32> = writes.iter().map(|one| one.mark.pass.into()).collect();
        let tokens: Vec<i64> = writes.iter().map(|one| one.token).collect();
        let documents = writes
            .iter()
            .map(|one| one.document.as_deref().map(JsonText));
        let documents: Vec<Option<JsonText<'_>>> = documents.collect();
        let weights = JsonText(self.weights);
        let parameters: [&dyn Parameter; 8] = [
            &self.index,
            &self.language,
            &weights,
            &ids,
            &versions,
            &passes,
            &tokens,
            &documents,
        ];
        let rows = query_primary(self.pool, include_str!("search_write.sql"), &parameters).await;
        let rows = rows.map_err(|failed| match failed {
            ReadFailure::Values(reason) => WriteFailure::Rejected(reason),
            ReadFailure::TooLarge(reason) => WriteFailure::TooLarge(reason),
            ReadFailure::Other(reason) => WriteFailure::IndexError(IndexError(reason)),
        })?;
        let taken = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let taken: Result<std::collections::HashMap<&str, bool>, tokio_postgres::Error> =
            taken.collect();
        let taken = taken.map_err(|error| WriteFailure::IndexError(IndexError(chain(&error))))?;
        let answer = |id: &&str| taken.get(id).copied().unwrap_or(false);
        Ok(ids.iter().map(answer).collect())
    }

    pub(crate) async fn read(
        &self,
        ids: &[String],
    ) -> Result<Vec<(String, IndexedVersion)>, IndexError> {
        self.read_entries(include_str!("search_read.sql"), &[&self.index, &ids])
            .await
    }

    pub(crate) async fn walk(
        &self,
        after: Option<&str>,
        most: i64,
    ) -> Result<Vec<(String, IndexedVersion)>, IndexError> {
        let parameters: [&dyn Parameter; 3] = [&self.index, &after, &most];
        self.read_entries(include_str!("search_walk.sql"), &parameters)
            .await
    }

    pub(crate) async fn is_empty(&self) -> Result<bool, IndexError> {
        let rows = query_primary(
            self.pool,
            include_str!("search_is_empty.sql"),
            &[&self.index],
        )
        .await?;
        let first = rows.first().map(|row| row.try_get(0));
        let is_empty = first.transpose();
        Ok(is_empty
            .map_err(|error| IndexError(chain(&error)))?
            .unwrap_or_default())
    }

    /// Returns the ids of the documents that are stored with exactly these words.
    pub(crate) async fn match_documents(
        &self,
        documents: &[(String, String)],
    ) -> Result<Vec<String>, IndexError> {
        let ids: Vec<&str> = documents.iter().map(|(id, _)| &**id).collect();
        let texts = documents.iter().map(|(_, text)| Some(JsonText(text)));
        let texts: Vec<Option<JsonText<'_>>> = texts.collect();
        let weights = JsonText(self.weights);
        let parameters: [&dyn Parameter; 5] = [&self.index, &self.language, &weights, &ids, &texts];
        let rows = query_primary(self.pool, include_str!("search_holds.sql"), &parameters).await?;
        let ids: Result<_, tokio_postgres::Error> = rows.iter().map(|row| row.try_get(0)).collect();
        ids.map_err(|error| IndexError(chain(&error)))
    }

    async fn read_entries(
        &self,
        sql: &str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<(String, IndexedVersion)>, IndexError> {
        let rows = query_primary(self.pool, sql, parameters).await?;
        let seen = |row: &Row| {
            let pass: i32 = row.try_get(2)?;
            let mark = Mark {
                version: row.try_get(1)?,
                pass: u16::try_from(pass).unwrap_or(Mark::DELETION_PASS),
            };
            let seen = IndexedVersion {
                mark,
                token: row.try_get(3)?,
                is_live: row.try_get(4)?,
                is_altered: false,
                is_foreign: false,
            };
            Ok((row.try_get(0)?, seen))
        };
        let all: Result<_, tokio_postgres::Error> = rows.iter().map(seen).collect();
        all.map_err(|error| IndexError(chain(&error)))
    }

    /// Removes old deletions page by page, each in its own transaction, so that none locks many
    /// rows.
    pub(crate) async fn prune_deletions(&self, older_than: Duration) -> Result<u64, IndexError> {
        let pooled = PooledClient::acquire(self.pool).await.map_err(IndexError)?;
        let age = milliseconds(older_than);
        let parameters: [&dyn Parameter; 3] = [&self.index, &age, &PRUNE_BATCH];
        let mut all = 0;
        loop {
            let forgotten = pooled
                .execute_typed(include_str!("search_forget.sql"), &typed(&parameters))
                .await;
            let forgotten = forgotten.map_err(|error| IndexError(chain(&error)))?;
            all += forgotten;
            if forgotten < PRUNE_BATCH.unsigned_abs() {
                pooled.give_back();
                return Ok(all);
            }
        }
    }

    pub(crate) async fn search(&self, query: &str, most: i64) -> Result<Vec<String>, IndexError> {
        let parameters: [&dyn Parameter; 4] = [&self.index, &self.language, &query, &most];
        let rows = query_any_server(self.pool, include_str!("search.sql"), &parameters).await?;
        let ids: Result<_, tokio_postgres::Error> = rows.iter().map(|row| row.try_get(0)).collect();
        ids.map_err(|error| IndexError(chain(&error)))
    }
}

impl From<ReadFailure> for IndexError {
    fn from(failed: ReadFailure) -> Self {
        let (ReadFailure::Values(reason)
        | ReadFailure::TooLarge(reason)
        | ReadFailure::Other(reason)) = failed;
        Self(reason)
    }
}
