//! Where documents come from: the rows of Postgres, by their ids.

use std::collections::HashSet;

use futures_util::future::BoxFuture;

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

    /// Enqueues a check of all rows, by jobs of their own, where it knows how: how many. For an
    /// index that has nothing.
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

    /// An error where its documents are made differently by now. A sync asks before it makes any.
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
