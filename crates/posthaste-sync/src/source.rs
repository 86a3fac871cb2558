//! Where documents come from: the rows of Postgres, by their ids.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use posthaste::Database;

use super::halves::halves;
use super::index::IndexError;
use crate::store::{self, Connections};

/// A row, as much as a decision needs.
#[derive(Clone, Debug, PartialEq)]
pub struct RowVersion {
    /// Its id.
    pub id: String,
    /// Its version: larger after each change of the row, also across its deletion and re-creation.
    pub version: i64,
    /// False for a row that is there and must not be found.
    pub is_live: bool,
}

/// A row with its document.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: i64,
    /// What is indexed of it.
    pub body: Body,
}

/// What is indexed of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A JSON object.
    Document(String),
    /// Nothing: the row is there and must not be found.
    Hidden,
    /// It cannot be made, and why; other rows are not touched.
    Unmade(String),
}

/// A field of documents, and the values that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// The type of its column, as `pg_type` calls it: the base of a domain, the elements of an
    /// array; `enum`, `range`, or `json` for all that is an object in JSON.
    pub column_type: String,
}

/// Why rows were not read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// It lies with one of the ids: parts of them are asked for again, until it stands alone.
    #[error("{0}")]
    Rows(String),
    /// The same, and the row can never be read as it is: its document is larger than Postgres can
    /// make one.
    #[error("{0}")]
    TooLarge(String),
    /// Postgres is not to be asked now.
    #[error("{0}")]
    Down(String),
}

impl From<SourceError> for IndexError {
    fn from(error: SourceError) -> Self {
        let (SourceError::Rows(reason) | SourceError::TooLarge(reason) | SourceError::Down(reason)) =
            error;
        Self(reason)
    }
}

/// Reads rows by ids. What it reads must be committed and current: never from a replica, never in a
/// snapshot that is older than the call.
pub trait Source: Send + Sync + 'static {
    /// The versions of those that are there, in any order.
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>>;

    /// Those that are there, in any order.
    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>>;

    /// Has all rows looked at, by jobs of their own, where it knows how: how many. For an index
    /// that has nothing.
    fn fill(&self) -> BoxFuture<'_, Result<u64, SourceError>> {
        Box::pin(async { Ok(0) })
    }

    /// Of these ids those of which a job of a change is still to come, and has not failed.
    fn pending<'a>(
        &'a self,
        _ids: &'a [String],
    ) -> BoxFuture<'a, Result<HashSet<String>, SourceError>> {
        Box::pin(async { Ok(HashSet::new()) })
    }

    /// The fields of its documents, where it knows them before it makes any: an index is made with
    /// mappings for them.
    fn fields(&self) -> BoxFuture<'_, Result<Vec<Field>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// What its documents depend on beside their rows: with another text they are others.
    fn recipe(&self) -> String {
        String::new()
    }

    /// An error where its documents are made in another way by now. A sync asks before it makes
    /// any.
    fn check(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    /// The next of all rows after this id, in an order of its own; fewer than `most` means that
    /// this is the end. For audits.
    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>>;
}

impl std::fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// The rows of a table that `posthaste.sync_table` was called for: all their columns, as JSON.
#[derive(Clone, Debug)]
pub struct Table {
    pool: Connections,
    name: String,
}

impl Table {
    /// The synced table of this name, in this [`Database`]: a pool of deadpool-postgres or of sqlx,
    /// or a URL. Unless it is a pool of deadpool-postgres, it opens at most four connections of its
    /// own, by the settings; what is wrong with these is the error of the first look.
    pub fn new(database: impl Into<Database>, name: impl Into<String>) -> Self {
        Self::over(Connections::to(database), name)
    }

    pub(crate) fn over(pool: Connections, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { pool, name }
    }
}

impl Source for Table {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(store::versions(&self.pool, &self.name, ids))
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(store::rows(&self.pool, &self.name, ids))
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(store::page(&self.pool, &self.name, after, most))
    }

    fn pending<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<HashSet<String>, SourceError>> {
        Box::pin(store::pending(&self.pool, &self.name, ids))
    }

    fn fields(&self) -> BoxFuture<'_, Result<Vec<Field>, SourceError>> {
        Box::pin(store::fields(&self.pool, &self.name))
    }

    fn fill(&self) -> BoxFuture<'_, Result<u64, SourceError>> {
        Box::pin(store::fill(&self.pool, &self.name))
    }
}

/// Rows that a statement of the program's own makes.
#[derive(Clone, Debug)]
pub struct Query {
    pool: Connections,
    rows: String,
    versions: String,
    walk: Option<String>,
}

impl Query {
    /// A statement with the ids as `$1`, a `text[]`, which returns `id text`, `version bigint` and
    /// `document jsonb`, NULL for a row that must not be found. It runs in this [`Database`], as
    /// for a [`Table`].
    pub fn new(database: impl Into<Database>, rows: impl Into<String>) -> Self {
        Self::over(Connections::to(database), rows)
    }

    pub(crate) fn over(pool: Connections, rows: impl Into<String>) -> Self {
        let rows = rows.into();
        Self {
            pool,
            versions: store::versions_of(&rows),
            rows,
            walk: None,
        }
    }

    /// The same without the documents, where that is cheaper: `id text`, `version bigint` and
    /// whether the row may be found. Without it, Postgres makes the documents also of rows of which
    /// only the version is wanted, and keeps them to itself.
    pub fn versions(mut self, versions: impl Into<String>) -> Self {
        self.versions = versions.into();
        self
    }

    /// What audits need: as for [`versions`](Self::versions), the next rows after the one whose id
    /// is `$1`, a `text` that is NULL at first, in the order of the ids, and at most `$2`, a
    /// `bigint`, of them. Fewer mean that this is the end.
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
        Box::pin(store::versions_by(&self.pool, &self.versions, ids))
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(store::rows_by(&self.pool, &self.rows, ids))
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async move {
            let missing = || SourceError::Down("this query has no statement to walk by".into());
            let walk = self.walk.as_ref().ok_or_else(missing)?;
            store::page_by(&self.pool, walk, after, most).await
        })
    }
}

/// Rows by ids, in the order of the ids: what a search shows. The index says which, Postgres what
/// they are now; an id whose row is gone or hidden is left out, so nothing stale is ever shown. An
/// error of a single row leaves that row out too.
pub async fn rows_of(source: &dyn Source, ids: &[String]) -> Result<Vec<Row>, SourceError> {
    let rows = halves(ids, |part| source.rows(part)).await?.read;
    let mut rows: std::collections::HashMap<String, Row> =
        rows.into_iter().map(|row| (row.id.clone(), row)).collect();
    let found = ids.iter().filter_map(|id| rows.remove(id));
    Ok(found
        .filter(|row| matches!(row.body, Body::Document(_)))
        .collect())
}
