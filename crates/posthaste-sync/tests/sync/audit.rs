//! Audits find exactly the differences, and repair them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste_sync::{
    Audit, Difference, Index, IndexError, IndexedVersion, Mark, Proof, Row, RowVersion, Source,
    SourceError, Table, Write, WriteOutcome,
};

use super::{Setup, setup};

async fn audited(setup: &Setup, repair: bool) -> posthaste_sync::AuditReport {
    let source = Table::new(setup.db.pool(2).unwrap(), "note");
    // Small pages, so that an audit reads many.
    let audit = Audit {
        page: 7,
        repair,
        ..Audit::default()
    };
    audit.run(&source, &setup.index).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_report_differences_and_repair_on_request() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'n ' || n FROM generate_series(-20, 79) n")
        .await;
    let nothing = audited(&setup, false).await;
    // Their jobs are pending.
    assert_eq!(
        (nothing.rows, nothing.documents, nothing.pending),
        (100, 0, 100)
    );
    assert!(nothing.is_equal() && nothing.named.is_empty());
    let filled = audited(&setup, true).await;
    assert_eq!((filled.missing, filled.repaired), (100, 100));
    let equal = audited(&setup, false).await;
    assert!(equal.is_equal() && equal.documents == 100, "{equal:?}");
    // Changed directly in the index, and directly in Postgres.
    setup
        .run(
            "DELETE FROM posthaste.search WHERE id = '7'; UPDATE note SET body = 'other' \
             WHERE id = 8; DELETE FROM note WHERE id = 9",
        )
        .await;
    let write = |id: &str, version| Write {
        id: id.into(),
        mark: Mark::new(version),
        token: 0,
        document: Some("{}".into()),
    };
    let strange = [write("500", 3), write("10", 1_000_000)];
    setup.index.inner.write(&strange).await.unwrap();
    let found = audited(&setup, true).await;
    let mut named = found.named.clone();
    named.sort_by_key(|(id, _)| id.parse::<i64>().unwrap());
    let names: Vec<(&str, Difference)> = named.iter().map(|(id, what)| (&**id, *what)).collect();
    let expected = [
        ("7", Difference::Missing),
        ("8", Difference::Stale),
        ("9", Difference::Orphaned),
        ("10", Difference::Ahead),
        ("500", Difference::Orphaned),
    ];
    assert_eq!(names, expected);
    assert_eq!(found.repaired, 4);
    let left = audited(&setup, false).await;
    assert_eq!(
        (left.ahead, left.missing + left.stale + left.orphaned),
        (1, 0)
    );
    setup
        .run("SELECT posthaste.sync_raise('note', 1000000, ARRAY['10'])")
        .await;
    assert_eq!(audited(&setup, true).await.repaired, 1);
    assert!(audited(&setup, false).await.is_equal());
}

/// If no trigger fires, the version stays, and only the contents differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_find_changes_that_bypassed_triggers() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'old ' || n FROM generate_series(1, 600) n")
        .await;
    let source = Table::new(setup.db.pool(2).unwrap(), "note");
    let index: &dyn Index = &*setup.index.inner;
    let audited = async |repair: bool, contents: bool| {
        let audit = Audit {
            repair,
            contents,
            ..Audit::default()
        };
        audit.run(&source, index).await.unwrap()
    };
    assert_eq!(audited(true, true).await.repaired, 600);
    for past in [
        "ALTER TABLE note DISABLE TRIGGER USER; UPDATE note SET body = 'new' WHERE id IN (7, 300);
         ALTER TABLE note ENABLE TRIGGER USER",
        "SET session_replication_role = replica; UPDATE note SET body = 'newer' WHERE id < 3;
         RESET session_replication_role",
    ] {
        setup.run(past).await;
        assert!(audited(false, false).await.is_equal());
        let found = audited(false, true).await;
        assert_eq!((found.altered, found.differences()), (2, 2), "{found:?}");
        let is_altered = |(_, how): &(String, Difference)| *how == Difference::Altered;
        assert!(found.named.iter().all(is_altered));
        let found = audited(true, true).await;
        assert_eq!((found.altered, found.repaired), (2, 2), "{found:?}");
        assert!(audited(false, true).await.is_equal());
    }
    assert_eq!(setup.found("new").await, ["300", "7"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_respect_their_rate_limit() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'word' FROM generate_series(1, 1000) n")
        .await;
    let source = Table::new(setup.db.pool(2).unwrap(), "note");
    let audit = Audit {
        page: 100,
        rate: Some(2_000),
        ..Audit::default()
    };
    let begun = std::time::Instant::now();
    let found = audit.run(&source, &setup.index).await.unwrap();
    assert_eq!(found.rows, 1_000);
    let taken = begun.elapsed();
    assert!(taken >= std::time::Duration::from_millis(400), "{taken:?}");
}

/// A table and its index. Another client inserts a row after the last one whenever a page is read.
struct Growing {
    setup: Setup,
    table: Table,
    pages: AtomicU64,
}

impl Growing {
    async fn grow(&self) {
        let page = self.pages.fetch_add(1, Ordering::Relaxed);
        assert!(page < 100, "it never ends");
        let id = 1_000 + page;
        let insert = format!("INSERT INTO note VALUES ({id}, 'late')");
        self.setup.run(&insert).await;
        let late = Write {
            id: id.to_string(),
            mark: Mark::new(1),
            token: 0,
            document: Some("{}".into()),
        };
        self.setup.index.inner.write(&[late]).await.unwrap();
    }
}

impl Source for Growing {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        self.table.versions(ids)
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        self.table.rows(ids)
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async move {
            self.grow().await;
            self.table.walk(after, most).await
        })
    }
}

impl Index for Growing {
    fn label(&self) -> String {
        self.setup.index.label()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        self.setup.index.write(writes)
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        self.setup.index.read(ids, proof)
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        Box::pin(async move {
            self.grow().await;
            self.setup.index.walk(after, most).await
        })
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        self.setup.index.prune_deletions(older_than)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_end_despite_faster_inserts() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'word' FROM generate_series(1, 30) n")
        .await;
    let growing = Growing {
        table: Table::new(setup.db.pool(2).unwrap(), "note"),
        setup,
        pages: AtomicU64::new(0),
    };
    let audit = Audit {
        page: 20,
        repair: true,
        ..Audit::default()
    };
    let found = audit.run(&growing, &growing).await.unwrap();
    // Two pages of rows, of which the second has the row inserted before it, and two of documents.
    assert_eq!((growing.pages.into_inner(), found.rows), (4, 32));
    assert_eq!(found.unrepaired(), 0, "{found:?}");
}
