//! The sources of this crate: the rows of a table, and the rows of a statement.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use posthaste::Database;

use crate::source::{Field, Row, RowVersion, Source, SourceError};
use crate::store::{self, Connections};

/// The rows of a table that was installed with `posthaste.sync_table`: all columns, as JSON.
#[derive(Clone, Debug)]
pub struct Table {
    pool: Connections,
    name: String,
}

impl Table {
    /// Returns the synced table of this name in this [`Database`]: a pool of deadpool-postgres or
    /// of sqlx, or a URL. Unless it is a pool of deadpool-postgres, the table opens at most four
    /// connections of its own, by the settings. Invalid settings are reported as the error of the
    /// first check.
    pub fn new(database: impl Into<Database>, name: impl Into<String>) -> Self {
        Self::with_connections(Connections::new(database), name)
    }

    pub(crate) fn with_connections(pool: Connections, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { pool, name }
    }
}

impl Source for Table {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(store::read_versions(&self.pool, &self.name, ids))
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(store::read_rows(&self.pool, &self.name, ids))
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(store::read_page(&self.pool, &self.name, after, most))
    }

    fn pending<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<HashSet<String>, SourceError>> {
        Box::pin(store::read_pending(&self.pool, &self.name, ids))
    }

    fn fields(&self) -> BoxFuture<'_, Result<Vec<Field>, SourceError>> {
        Box::pin(store::read_fields(&self.pool, &self.name))
    }

    fn fill(&self) -> BoxFuture<'_, Result<u64, SourceError>> {
        Box::pin(store::enqueue_fill(&self.pool, &self.name))
    }
}

/// The rows of a statement that the program provides.
#[derive(Clone, Debug)]
pub struct Query {
    pool: Connections,
    rows: String,
    versions: String,
    walk: Option<String>,
}

impl Query {
    /// Returns the rows of a statement that takes the ids as `$1`, a `text[]`, and returns `id
    /// text`, `version bigint` and `document jsonb`, which is NULL for a hidden row. It runs in
    /// this [`Database`], as for a [`Table`].
    pub fn new(database: impl Into<Database>, rows: impl Into<String>) -> Self {
        Self::with_connections(Connections::new(database), rows)
    }

    pub(crate) fn with_connections(pool: Connections, rows: impl Into<String>) -> Self {
        let rows = rows.into();
        Self {
            pool,
            versions: store::versions_statement(&rows),
            rows,
            walk: None,
        }
    }

    /// Sets a cheaper statement without the documents, which returns `id text`, `version bigint`
    /// and whether searches may find the row. By default Postgres makes the documents of rows whose
    /// versions are read too, but does not return them.
    pub fn versions(mut self, versions: impl Into<String>) -> Self {
        self.versions = versions.into();
        self
    }

    /// Sets the statement for audits. It returns the same columns as [`versions`](Self::versions)
    /// for the next rows after the id `$1`, a `text` that is NULL at first, in the order of the
    /// ids, and at most `$2` rows, a `bigint`. Fewer rows mean that the end is reached.
    pub fn walk(mut self, walk: impl Into<String>) -> Self {
        self.walk = Some(walk.into());
        self
    }
}

impl Source for Query {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(store::read_versions_by(&self.pool, &self.versions, ids))
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(store::read_rows_by(&self.pool, &self.rows, ids))
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async move {
            let missing =
                || SourceError::Down("this query has no statement for reading pages".into());
            let walk = self.walk.as_ref().ok_or_else(missing)?;
            store::read_page_by(&self.pool, walk, after, most).await
        })
    }
}
