//! The interface of a source of documents: rows of Postgres, read by their ids.

use std::collections::HashSet;

use futures_util::future::BoxFuture;

/// The version of a row, without its document.
#[derive(Clone, Debug, PartialEq)]
pub struct RowVersion {
    /// The id of the row.
    pub id: String,
    /// Its version, which increases with each change of the row, also across deletion and
    /// re-creation.
    pub version: i64,
    /// Whether searches may find the row; false for a hidden row.
    pub is_live: bool,
}

/// A row with its document.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The id of the row.
    pub id: String,
    /// The version of the row.
    pub version: i64,
    /// The indexed content.
    pub body: Body,
}

/// The indexed content of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A JSON object.
    Document(String),
    /// None: the row exists and is hidden from searches.
    Hidden,
    /// The document cannot be made, for this reason; other rows are not affected.
    Unmade(String),
}

/// A field of documents, and the type of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The type of its column, by its name in `pg_type`: the base type of a domain, the element
    /// type of an array; `enum`, `range`, or `json` for all values that are objects in JSON.
    pub column_type: String,
}

/// The reason why rows were not read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// One of the ids causes the error: the ids are read again in smaller parts, until that id is
    /// isolated.
    #[error("{0}")]
    Rows(String),
    /// As [`Rows`](SourceError::Rows), and the row can never be read as it is: its document exceeds
    /// a limit of Postgres.
    #[error("{0}")]
    TooLarge(String),
    /// Postgres cannot be read now.
    #[error("{0}")]
    Down(String),
}

/// Reads rows by ids. It must return committed and current data: never from a replica, and never
/// from a snapshot older than the call.
pub trait Source: Send + Sync + 'static {
    /// Returns the versions of the rows that exist, in any order.
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>>;

    /// Returns the rows that exist, in any order.
    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>>;

    /// Enqueues jobs that check all rows, if the source can, and returns how many. Used when the
    /// index is empty.
    fn fill(&self) -> BoxFuture<'_, Result<u64, SourceError>> {
        Box::pin(async { Ok(0) })
    }

    /// Returns the ids among these whose change has a pending job that has not failed.
    fn pending<'a>(
        &'a self,
        _ids: &'a [String],
    ) -> BoxFuture<'a, Result<HashSet<String>, SourceError>> {
        Box::pin(async { Ok(HashSet::new()) })
    }

    /// Returns the fields of its documents, if they are known before a document is made: the index
    /// is created with mappings for them.
    fn fields(&self) -> BoxFuture<'_, Result<Vec<Field>, SourceError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns a text that identifies how documents are made of rows. When it changes, the
    /// documents change.
    fn recipe(&self) -> String {
        String::new()
    }

    /// Fails if documents are made differently by now. A sync calls this before it makes documents.
    fn check(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns the next rows after this id, in the source's order, for audits. Fewer than `most`
    /// rows mean that the end is reached.
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
