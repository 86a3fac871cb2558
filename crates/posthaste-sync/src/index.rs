//! What keeps the documents that are searched: one file each. What is the same for all of them is
//! configured here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::decide::{IndexedVersion, Mark};
use super::source::{Field, SourceError};

/// One document to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Its id.
    pub id: String,
    /// Taken only where the index has nothing of this id, or something with a smaller mark.
    pub mark: Mark,
    /// Shown again by [`Index::read`]: the one that reads it knows whose write it was.
    pub token: i64,
    /// A JSON object; none: the document is deleted. What a deletion leaves is its mark, so that a
    /// late write of what was deleted is refused.
    pub document: Option<String>,
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// The index says that it has it now.
    Taken,
    /// It has the same mark or a larger one.
    Older,
    /// It does not take this document: a field does not fit its mapping.
    Rejected {
        /// Why; shown to people.
        reason: String,
    },
    /// It can never take this: nothing of this id, nothing of this size, no word of this length.
    Never {
        /// Why; shown to people.
        reason: String,
    },
    /// Not this time.
    Retry {
        /// Why.
        reason: String,
    },
}

/// The index was not to be asked: down, full, read-only, late. Of a write, nobody knows what became
/// of it.
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

/// What must have happened to a document before its job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// The index has it: it is read back by its id.
    #[default]
    Stored,
    /// A search that is made now finds it.
    Searchable,
}

/// Keeps documents and finds them. An index never replaces a document by one with a smaller mark,
/// or the same: this is all that late, repeated and reordered writes need. It is not believed: what
/// it says it wrote is read again before a job is done.
///
/// Whatever it is asked may be cancelled at any moment by dropping the future.
pub trait Index: Send + Sync + 'static {
    /// Its kind and place for people, without secrets.
    fn label(&self) -> String;

    /// Writes documents, each id at most once; one answer for each, in their order. One that is
    /// refused touches no other.
    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>>;

    /// What it shows of these ids, in their order: nothing, a document, or what its deletion left.
    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>>;

    /// What it shows, in the order of the ids' bytes, beginning after this one; fewer than `most`
    /// means that this is the end.
    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>>;

    /// Whether it has nothing at all, because it is new or because somebody took it away: a sync
    /// then enqueues a check of all rows.
    fn is_empty(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(async { Ok(false) })
    }

    /// Whether a document that came now would keep a sync from seeing that it has nothing: direct
    /// writes wait for the sync then.
    fn awaits_fill(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(async { Ok(false) })
    }

    /// Makes it where there is none, for documents with these fields, as far as these are known. A
    /// sync does so as soon as all rows are to be checked, and by nothing else: what was made
    /// beside that would have documents before anybody saw it empty.
    fn make<'a>(&'a self, _fields: &'a [Field]) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(async { Ok(()) })
    }

    /// Of each of these ids and documents, in their order, whether it holds this very document.
    fn holds<'a>(
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

    /// Documents that nobody wrote through this, and that no [`walk`](Self::walk) shows: how many
    /// there are, and the ids of at most this many of them. For indexes that others can write too.
    fn unmanaged(&self, _most: usize) -> BoxFuture<'_, Result<(u64, Vec<String>), IndexError>> {
        Box::pin(async { Ok((0, Vec::new())) })
    }

    /// Deletes these, as far as they are still unmanaged, and as they were seen.
    fn remove_unmanaged<'a>(&'a self, _ids: &'a [String]) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(async { Ok(()) })
    }

    /// Forgets deletions that are older than this, by the index's clock: how many. After that, a
    /// write that was in transit for this long would be taken.
    fn forget(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>>;

    /// The indexes that must all be true before a job is done, where these are others than this one
    /// by itself: what it stands for, and what is being made beside it. They are distinguished by
    /// their labels. An error where there is none: this makes none.
    fn targets(&self) -> BoxFuture<'_, Result<Vec<Arc<dyn Index>>, IndexError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The ids of at most this many documents that match a query as people write it, the best
    /// first. An index that is searched elsewhere leaves it out.
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
