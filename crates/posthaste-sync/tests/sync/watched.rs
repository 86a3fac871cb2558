//! Full-text search in Postgres that records its requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste_sync::{Index, IndexError, IndexedVersion, Postgres, Proof, Write, WriteOutcome};

/// An index that can be made unavailable, and records its writes.
#[derive(Clone)]
pub struct Watched {
    pub inner: Arc<Postgres>,
    pub is_down: Arc<AtomicBool>,
    pub writes: Arc<Mutex<Vec<Write>>>,
    /// The sizes of the documents of each write request, in bytes.
    pub requests: Arc<Mutex<Vec<Vec<usize>>>>,
    /// The proof of each read.
    pub proofs: Arc<Mutex<Vec<Proof>>>,
}

impl Watched {
    fn check(&self) -> Result<(), IndexError> {
        match self.is_down.load(Ordering::SeqCst) {
            true => Err(IndexError("as configured".into())),
            false => Ok(()),
        }
    }
}

impl Index for Watched {
    fn label(&self) -> String {
        self.inner.label()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        Box::pin(async move {
            self.check()?;
            self.writes.lock().unwrap().extend_from_slice(writes);
            let size = |write: &Write| write.document.as_ref().map_or(0, String::len);
            let sizes = writes.iter().map(size).collect();
            self.requests.lock().unwrap().push(sizes);
            self.inner.write(writes).await
        })
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        Box::pin(async move {
            self.check()?;
            self.proofs.lock().unwrap().push(proof);
            self.inner.read(ids, proof).await
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        self.inner.walk(after, most)
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        self.inner.prune_deletions(older_than)
    }
}
