//! The index sync from outside: the outcome of jobs and documents for many kinds of rows, indexes
//! and workers.

mod audit;
mod conformance;
mod direct;
#[cfg(feature = "elastic")]
mod elastic;
#[cfg(feature = "elastic")]
mod fake_server;
mod hidden;
mod installed;
mod keys;
mod panics;
mod parts;
mod pooled;
mod postgres;
mod quarantine;
mod rendered;
mod schedules;
mod seeds;
mod several;
mod slow;
mod tantivy;
mod trickle;
mod unreadable;
mod version_blind;
mod versions;
mod watched;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posthaste::{Backoff, WorkerHandle};
use posthaste_sync::{
    Index, IndexSync, Postgres, Query, Source, SyncBuilder, Table, Write, rows_of,
};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, eventually};
use tokio_postgres::Client;

use crate::support::{SOON, all_done, database, number, unfinished, worker};
use watched::Watched;

const NOTES: &str = "CREATE TABLE note (id bigint PRIMARY KEY, body text);
    SELECT posthaste.sync_table('note', delay => '0')";

struct Setup {
    db: TestDb,
    client: Client,
    index: Watched,
}

async fn setup() -> Setup {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client.run(NOTES).await.unwrap();
    let index = Watched {
        inner: Arc::new(Postgres::new(db.pool(2).unwrap(), "note")),
        is_down: Arc::default(),
        writes: Arc::default(),
        requests: Arc::default(),
        proofs: Arc::default(),
    };
    Setup { db, client, index }
}

impl Setup {
    fn sync(&self) -> SyncBuilder {
        self.sync_of(Table::new(self.db.pool(2).unwrap(), "note"))
    }

    fn sync_of(&self, source: impl Source) -> SyncBuilder {
        let quick = Backoff {
            base: Duration::from_millis(20),
            cap: Duration::from_millis(100),
        };
        let sync = IndexSync::builder(source, self.index.clone());
        sync.period(Duration::from_millis(100)).backoff(quick)
    }

    async fn start(&self, sync: SyncBuilder) -> (WorkerHandle, IndexSync) {
        let sync = sync.start().unwrap();
        let worker = worker(&self.db.pool(2).unwrap()).consumer("sync.note", sync.clone());
        (worker.start().await.unwrap(), sync)
    }

    async fn run(&self, sql: &str) {
        self.client.run(sql).await.unwrap();
    }

    async fn found(&self, query: &str) -> Vec<String> {
        let mut found = self.index.inner.search(query, 100).await.unwrap();
        found.sort();
        found
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_complete_only_after_their_version_was_read_back() {
    let setup = setup().await;
    let (worker, sync) = setup.start(setup.sync()).await;
    setup
        .run("INSERT INTO note VALUES (1, 'the red fox'), (2, 'a red hen'), (3, 'the blue whale')")
        .await;
    all_done(&setup.client).await;
    assert_eq!(setup.found("red").await, ["1", "2"]);
    // Each job was written as missing, then verified in a later check.
    let status = sync.status();
    let counts: Vec<_> = status
        .counts()
        .map(|one| (one.what.to_owned(), one.reason.to_owned(), one.jobs))
        .collect();
    let entry = |what: &str, reason: &str, jobs| (what.to_owned(), reason.to_owned(), jobs);
    assert_eq!(
        counts,
        [entry("done", "equal", 3), entry("written", "missing", 3)]
    );
    let changes = "SET posthaste.tag = 'edit'; UPDATE note SET body = 'a grey hen' WHERE id = 2;
                   DELETE FROM note WHERE id = 1; INSERT INTO note VALUES (4, 'red');
                   RESET posthaste.tag";
    setup.run(changes).await;
    all_done(&setup.client).await;
    assert_eq!(setup.found("red").await, ["4"]);
    assert_eq!(setup.found("hen").await, ["2"]);
    let status = sync.status();
    let edits = status
        .counts()
        .filter(|one| one.tag == "edit" && one.what == "written");
    let edits: Vec<&str> = edits.map(|one| one.reason).collect();
    assert_eq!(edits, ["deleted", "different", "missing"]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreated_rows_are_indexed_again() {
    let setup = setup().await;
    let (worker, _) = setup.start(setup.sync()).await;
    for round in 0..2 {
        setup
            .run(&format!("INSERT INTO note VALUES (1, 'round {round}')"))
            .await;
        all_done(&setup.client).await;
        assert_eq!(setup.found("round").await, ["1"]);
        setup.run("DELETE FROM note").await;
        all_done(&setup.client).await;
        assert_eq!(setup.found("round").await.len(), 0);
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_one_document_share_one_write() {
    let setup = setup().await;
    setup.run("INSERT INTO note VALUES (1, 'n 0')").await;
    for n in 1..20 {
        setup.run(&format!("UPDATE note SET body = 'n {n}'")).await;
    }
    assert_eq!(unfinished(&setup.client).await, 20);
    let (worker, _) = setup.start(setup.sync()).await;
    all_done(&setup.client).await;
    assert_eq!(setup.index.writes.lock().unwrap().len(), 1);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlogs_are_processed_in_batches_and_bounded_writes() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, repeat('word ', 200) FROM generate_series(1, 500) n")
        .await;
    // The period is so long that only the first poll counts.
    let sync = setup
        .sync()
        .batch(40)
        .bytes(5_000)
        .period(Duration::from_secs(3600));
    let (worker, sync) = setup.start(sync).await;
    eventually(SOON, "all are written", async || {
        Ok(sync.status().total("written") == 500)
    })
    .await
    .unwrap();
    assert_eq!(setup.found("word").await.len(), 100);
    assert!(sync.status().passes >= 12, "{}", sync.status().passes);
    // A document has more than a thousand bytes, so at most four are written at once.
    let requests = setup.index.requests.lock().unwrap().clone();
    assert!(requests.len() >= 125, "{}", requests.len());
    let of_one = |request: &[usize]| request.iter().sum::<usize>();
    assert!(
        requests
            .iter()
            .all(|one| of_one(one) <= 5_000 && !one.is_empty())
    );
    assert!(requests.iter().any(|one| one.len() > 1));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_document_delays_only_itself() {
    let setup = setup().await;
    let rows = "INSERT INTO note SELECT n, n::text FROM generate_series(1, 100) n;
                UPDATE note SET body = 'poison' WHERE id = 41";
    setup.run(rows).await;
    let query = "SELECT id::text, posthaste_version, \
                   jsonb_build_object('twice', (2 * body::integer)::text) \
                 FROM note WHERE id = ANY ($1::bigint[])";
    let query = Query::new(setup.db.pool(2).unwrap(), query).versions(
        "SELECT id::text, posthaste_version, true FROM note WHERE id = ANY ($1::bigint[])",
    );
    let (worker, sync) = setup.start(setup.sync_of(query)).await;
    // The two jobs of row 41 remain, and their attempts count.
    let left = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '41' AND attempt > 1 \
                AND last_error LIKE '%invalid input syntax%'";
    eventually(SOON, "all others are done", async || {
        Ok(unfinished(&setup.client).await == 2 && number(&setup.client, left).await == 2)
    })
    .await
    .unwrap();
    assert_eq!(setup.found("84").await, ["42"]);
    assert!(sync.status().last_error.is_some());
    setup.run("UPDATE note SET body = '41' WHERE id = 41").await;
    all_done(&setup.client).await;
    assert_eq!(setup.found("82").await, ["41"]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_index_counts_no_attempt_and_jobs_drain_later() {
    let setup = setup().await;
    setup.index.is_down.store(true, Ordering::SeqCst);
    let (worker, sync) = setup.start(setup.sync().batch(50)).await;
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(1, 300) n")
        .await;
    eventually(SOON, "it is noticed", async || {
        Ok(sync.status().total("rescheduled") > 100)
    })
    .await
    .unwrap();
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    assert_eq!(number(&setup.client, counted).await, 0);
    assert_eq!(unfinished(&setup.client).await, 300);
    setup.index.is_down.store(false, Ordering::SeqCst);
    all_done(&setup.client).await;
    assert_eq!(
        number(&setup.client, "SELECT count(*) FROM posthaste.search").await,
        300
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forced_documents_are_rewritten() {
    let setup = setup().await;
    let rows = "CREATE TABLE author (name text); INSERT INTO author VALUES ('ada');
                INSERT INTO note VALUES (1, 'x')";
    setup.run(rows).await;
    let query = "SELECT id::text, posthaste_version, \
                   jsonb_build_object('by', (SELECT name FROM author)) \
                 FROM note WHERE id = ANY ($1::bigint[])";
    let query = Query::new(setup.db.pool(2).unwrap(), query);
    let (worker, sync) = setup.start(setup.sync_of(query)).await;
    all_done(&setup.client).await;
    for name in ["grace", "edith"] {
        let rename = format!(
            "BEGIN; UPDATE author SET name = '{name}'; SELECT posthaste.sync('note', id::text, \
             '0', force => true, tag => 'rename') FROM note; COMMIT"
        );
        setup.run(&rename).await;
        all_done(&setup.client).await;
        assert_eq!(setup.found(name).await, ["1"]);
    }
    assert_eq!(setup.found("ada or grace").await.len(), 0);
    let status = sync.status();
    let renamed = status.counts().find(|one| one.tag == "rename").unwrap();
    assert_eq!(
        (renamed.what, renamed.reason, renamed.jobs),
        ("done", "forced", 2)
    );
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_show_current_rows() {
    let setup = setup().await;
    let (worker, _) = setup.start(setup.sync()).await;
    setup
        .run("INSERT INTO note VALUES (1, 'red one'), (2, 'red two'), (3, 'red three')")
        .await;
    all_done(&setup.client).await;
    worker.stop().await.unwrap();
    // The index lags now.
    setup
        .run("UPDATE note SET body = 'green' WHERE id = 2; DELETE FROM note WHERE id = 3")
        .await;
    assert_eq!(setup.found("red").await, ["1", "2", "3"]);
    let source = Table::new(setup.db.pool(1).unwrap(), "note");
    let ids = ["2", "3", "1", "99"].map(String::from);
    let rows = rows_of(&source, &ids).await.unwrap();
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {:?}", row.id, row.body))
        .collect();
    assert_eq!(shown.len(), 2);
    assert!(
        shown[0].starts_with("2 ") && shown[0].contains("green"),
        "{shown:?}"
    );
    assert!(
        shown[1].starts_with("1 ") && shown[1].contains("red one"),
        "{shown:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_ahead_of_their_table_are_reported_until_versions_are_raised() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note VALUES (1, 'from before the restore')")
        .await;
    let newer = Write {
        id: "1".into(),
        mark: posthaste_sync::Mark::new(1_000),
        token: 0,
        document: Some(r#"{"body": "of a commit that was lost"}"#.into()),
    };
    setup.index.inner.write(&[newer]).await.unwrap();
    let (worker, _) = setup.start(setup.sync()).await;
    let reported =
        "SELECT count(*) FROM posthaste.job WHERE last_error LIKE '%version 1000%sync_raise%'";
    eventually(SOON, "it is reported", async || {
        Ok(number(&setup.client, reported).await == 1)
    })
    .await
    .unwrap();
    setup
        .run("SELECT posthaste.sync_raise('note', 1000, ARRAY['1'])")
        .await;
    all_done(&setup.client).await;
    assert_eq!(setup.found("lost").await.len(), 0);
    assert_eq!(setup.found("restore").await, ["1"]);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_without_a_document_are_discarded_with_the_reason() {
    let setup = setup().await;
    setup
        .run(r#"SELECT posthaste.enqueue('sync.note', '{"document": 1}', 'sync.note')"#)
        .await;
    let (worker, _) = setup.start(setup.sync()).await;
    let stored = "SELECT count(*) FROM posthaste.job WHERE state = 'discarded' \
                AND last_error LIKE '%missing field `id`%'";
    eventually(SOON, "the job is discarded", async || {
        Ok(number(&setup.client, stored).await == 1)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reindexing_takes_one_statement_and_yields_to_new_work() {
    let setup = setup().await;
    let unseen = "ALTER TABLE note DISABLE TRIGGER USER;
                  INSERT INTO note SELECT n, 'old' FROM generate_series(1, 300) n;
                  ALTER TABLE note ENABLE TRIGGER USER";
    setup.run(unseen).await;
    let (worker, sync) = setup.start(setup.sync().batch(20)).await;
    // After this the worker knows the priority of the changes.
    setup.run("INSERT INTO note VALUES (0, 'first')").await;
    all_done(&setup.client).await;
    setup
        .run(
            "BEGIN;
             INSERT INTO posthaste.job (name, queue, priority, tag, max_attempts, kwargs)
             SELECT 'sync.note', 'sync.note', 1000, 'reindex', NULL,
                    jsonb_build_object('id', id::text) FROM note WHERE id > 100;
             INSERT INTO note VALUES (1000, 'new');
             COMMIT",
        )
        .await;
    all_done(&setup.client).await;
    let writes: Vec<Write> = setup.index.writes.lock().unwrap().clone();
    // The new row is in the first batch, and two batches are in flight at once.
    let first_batches = &writes[1..=60];
    assert!(first_batches.iter().any(|one| one.id == "1000"));
    let written = "SELECT count(*) FROM posthaste.search";
    assert_eq!(number(&setup.client, written).await, 202);
    let status = sync.status();
    let reindexed = status
        .counts()
        .filter(|one| one.tag == "reindex" && one.what == "done");
    assert_eq!(reindexed.map(|one| one.jobs).sum::<u64>(), 200);
    worker.stop().await.unwrap();
}
