//! The interface of a search index. Each kind of index has its file.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::decide::{IndexedVersion, Mark};
use super::source::{Field, SourceError};

/// One document to write or delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The id of the document.
    pub id: String,
    /// The mark: the write is accepted only if the index has nothing under this id, or a smaller
    /// mark.
    pub mark: Mark,
    /// The token, which [`Index::read`] returns, so that a reader recognizes its own write.
    pub token: i64,
    /// A JSON object; `None` deletes the document. A deletion leaves its mark, so that a late write
    /// of the deleted document is refused.
    pub document: Option<String>,
}

/// The outcome of one write.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// The index reports that it has stored the document.
    Taken,
    /// The index has the same mark or a larger one.
    Older,
    /// The index refuses this document: a field does not fit its mapping.
    Rejected {
        /// The reason, for people.
        reason: String,
    },
    /// The index can never accept this: the id, the document or a word is too long.
    Never {
        /// The reason, for people.
        reason: String,
    },
    /// The write was not done this time, and may be retried.
    Retry {
        /// The reason.
        reason: String,
    },
}

/// The index did not answer: it is down, full, read-only or too slow. The outcome of a write is
/// then unknown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(pub String);

impl From<SourceError> for IndexError {
    fn from(error: SourceError) -> Self {
        use SourceError::{Down, Rows, TooLarge};
        let (Rows(reason) | TooLarge(reason) | Down(reason)) = error;
        Self(reason)
    }
}

/// The condition that a document must meet before its job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// The index has the document: it is read back by its id.
    #[default]
    Stored,
    /// A search finds the document now.
    Searchable,
}

/// Stores and finds documents. An index never replaces a document by one with an equal or smaller
/// mark, which makes late, repeated and reordered writes harmless. Its reports are not trusted: a
/// job is done only after its document was read back.
///
/// Callers may cancel any of its futures at any time by dropping it.
pub trait Index: Send + Sync + 'static {
    /// Returns its kind and location for people, without secrets.
    fn label(&self) -> String;

    /// Writes documents, each id at most once. Returns one outcome for each, in the same order. A
    /// refused document does not affect the others.
    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>>;

    /// Returns the entry of each id, in the same order: `None`, a document, or the mark of a
    /// deletion.
    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>>;

    /// Returns the next entries after this id, in the order of the ids' bytes. Fewer than `most`
    /// entries mean that the end is reached.
    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>>;

    /// Returns whether it is completely empty, because it is new or was deleted: a sync then
    /// enqueues a check of all rows.
    fn is_empty(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(async { Ok(false) })
    }

    /// Returns whether a document written now would hide from the sync that the index is empty:
    /// direct writes then wait for the sync.
    fn awaits_fill(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(async { Ok(false) })
    }

    /// Creates the index if it does not exist, for documents with these fields, as far as they are
    /// known. Called only after a check of all rows was enqueued: an index created by other means
    /// could receive documents before a sync finds it empty.
    fn create_if_missing<'a>(
        &'a self,
        _fields: &'a [Field],
    ) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns, for each id and document, in the same order, whether the index holds exactly this
    /// document.
    fn match_documents<'a>(
        &'a self,
        _documents: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Vec<bool>, IndexError>> {
        let label = self.label();
        Box::pin(async move {
            Err(IndexError(format!(
                "{label} does not describe its contents"
            )))
        })
    }

    /// Returns the number of documents that were not written through this interface and that no
    /// [`walk`](Self::walk) shows, and the ids of at most `most` of them. For indexes that other
    /// clients can write.
    fn unmanaged(&self, _most: usize) -> BoxFuture<'_, Result<(u64, Vec<String>), IndexError>> {
        Box::pin(async { Ok((0, Vec::new())) })
    }

    /// Deletes these documents, unless they have changed or are managed by now.
    fn remove_unmanaged<'a>(&'a self, _ids: &'a [String]) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(async { Ok(()) })
    }

    /// Removes the marks of deletions that are older than this, by the index's clock, and returns
    /// how many. A write that is in transit for longer than this would be accepted afterwards.
    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>>;

    /// Returns the indexes that must all be consistent before a job is done, if this index
    /// represents others: the current one and one that is being built beside it. Their labels
    /// distinguish them. Fails if there is no current index; this call creates none.
    fn targets(&self) -> BoxFuture<'_, Result<Vec<Arc<dyn Index>>, IndexError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the ids of at most this many documents that match a query as people write it, the
    /// best first. An index that cannot be searched through this crate omits it.
    fn search<'a>(
        &'a self,
        _query: &'a str,
        _most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, IndexError>> {
        let label = self.label();
        Box::pin(async move { Err(IndexError(format!("{label} cannot be searched from here"))) })
    }
}

impl std::fmt::Debug for dyn Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label())
    }
}
