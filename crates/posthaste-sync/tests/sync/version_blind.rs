//! The presence-only check: a document that exists counts as equal, whatever its version.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste_sync::{Field, Index, IndexError, IndexedVersion, Proof, Write, WriteOutcome};

use super::world::World;

/// An index that reports every document with the version of its row.
pub struct VersionBlind {
    inner: Arc<dyn Index>,
    world: World,
}

impl VersionBlind {
    pub fn new(inner: Arc<dyn Index>, world: World) -> Self {
        Self { inner, world }
    }
}

impl Index for VersionBlind {
    fn label(&self) -> String {
        self.inner.label()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        self.inner.write(writes)
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        Box::pin(async move {
            let seen = self.inner.read(ids, proof).await?;
            let world = self.world.inner();
            let pairs = ids.iter().zip(seen);
            Ok(pairs.map(|(id, seen)| world.believed(id, seen)).collect())
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        self.inner.walk(after, most)
    }

    fn create_if_missing<'a>(
        &'a self,
        fields: &'a [Field],
    ) -> BoxFuture<'a, Result<(), IndexError>> {
        self.inner.create_if_missing(fields)
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        self.inner.prune_deletions(older_than)
    }

    fn targets(&self) -> BoxFuture<'_, Result<Vec<Arc<dyn Index>>, IndexError>> {
        Box::pin(async move {
            let blind =
                |inner| -> Arc<dyn Index> { Arc::new(Self::new(inner, self.world.clone())) };
            let targets = self.inner.targets().await?;
            Ok(targets.into_iter().map(blind).collect())
        })
    }
}
