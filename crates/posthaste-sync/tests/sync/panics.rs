//! Rows and indexes that panic: the sync continues and reports the panic, and no other document
//! waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::WorkerHandle;
use posthaste_sync::{
    Index, IndexError, IndexSync, IndexedVersion, Proof, Row, RowVersion, Source, SourceError,
    Table, Write, WriteOutcome,
};
use posthaste_testkit::eventually;

use super::watched::Watched;
use super::{Setup, setup};
use crate::support::{SOON, all_done, number, unfinished};

/// Rows of which one panics when it is made.
struct Panicking(Table);

impl Source for Panicking {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.0.versions(ids)
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        assert!(
            !ids.iter().any(|id| id == "41"),
            "no document is made of 41"
        );
        self.0.rows(ids)
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.0.walk(after, most)
    }
}

/// An index whose methods panic this often.
struct Fragile {
    index: Watched,
    polls: AtomicU32,
    writes: AtomicU32,
    forgets: AtomicU32,
}

impl Fragile {
    fn panic(left: &AtomicU32, what: &str) {
        let is_left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        assert!(is_left.is_err(), "a {what} panics");
    }
}

impl Index for Fragile {
    fn label(&self) -> String {
        self.index.label()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        Self::panic(&self.writes, "write");
        self.index.write(writes)
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        Box::pin(async move {
            Self::panic(&self.polls, "look");
            self.index.read(ids, proof).await
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        self.index.walk(after, most)
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        Self::panic(&self.forgets, "forgetting");
        self.index.prune_deletions(older_than)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_panics_delays_only_itself_and_is_reported() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(1, 100) n")
        .await;
    let rows = Panicking(Table::new(setup.db.pool(2).unwrap(), "note"));
    let (worker, sync) = setup.start(setup.sync_of(rows)).await;
    let left = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '41' AND attempt > 1 \
                AND last_error LIKE '%panicked: no document is made of 41%'";
    eventually(SOON, "all others are done", async || {
        Ok(unfinished(&setup.client).await == 1 && number(&setup.client, left).await == 1)
    })
    .await
    .unwrap();
    let reported = sync.status().last_error.unwrap();
    assert!(reported.contains("no document is made of 41"), "{reported}");
    worker.stop().await.unwrap();
}

async fn start(setup: &Setup, index: Fragile) -> (WorkerHandle, IndexSync) {
    let rows = Table::new(setup.db.pool(2).unwrap(), "note");
    let sync = IndexSync::builder_any(Arc::new(rows), Arc::new(index));
    setup.start(sync.period(Duration::from_millis(100))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_index_counts_no_attempt_and_is_retried() {
    let setup = setup().await;
    let index = Fragile {
        index: setup.index.clone(),
        polls: AtomicU32::new(2),
        writes: AtomicU32::new(2),
        forgets: AtomicU32::new(0),
    };
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(1, 100) n")
        .await;
    let (worker, sync) = start(&setup, index).await;
    eventually(SOON, "it is reported", async || {
        let reported = sync.status().last_error.unwrap_or_default();
        Ok(reported.contains("a pass panicked: a "))
    })
    .await
    .unwrap();
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    assert_eq!(number(&setup.client, counted).await, 0);
    all_done(&setup.client).await;
    assert!(sync.status().total("rescheduled") >= 4);
    assert_eq!(sync.status().total("failed"), 0);
    assert_eq!(setup.found("note").await.len(), 100);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panics_outside_passes_end_no_sync() {
    let setup = setup().await;
    let index = Fragile {
        index: setup.index.clone(),
        polls: AtomicU32::new(0),
        writes: AtomicU32::new(0),
        forgets: AtomicU32::new(3),
    };
    let (worker, sync) = start(&setup, index).await;
    eventually(SOON, "it is reported", async || {
        let reported = sync.status().last_error.unwrap_or_default();
        Ok(reported.contains("a poll panicked: a forgetting panics"))
    })
    .await
    .unwrap();
    setup.run("INSERT INTO note VALUES (1, 'afterwards')").await;
    all_done(&setup.client).await;
    assert_eq!(setup.found("afterwards").await, ["1"]);
    worker.stop().await.unwrap();
}
