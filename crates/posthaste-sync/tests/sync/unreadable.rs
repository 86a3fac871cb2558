//! Ids that cannot be read block only themselves.

use posthaste_sync::{Audit, AuditReport, Body, Difference, Index, Query, Source, Table, rows_of};

use posthaste_testkit::eventually;

use super::conformance::write;
use super::{Setup, setup};
use crate::support::{SOON, number, unfinished};

const WALK: &str = "SELECT id::text, posthaste_version, true FROM note
    WHERE $1::text IS NULL OR id > $1::bigint ORDER BY note.id LIMIT $2";

/// Rows of which the seventh cannot be made.
fn dividing(setup: &Setup) -> Query {
    let rows = "SELECT id::text, posthaste_version, \
                  jsonb_build_object('body', body, 'n', 1 / (id - 7)) \
                FROM note WHERE id = ANY ($1::bigint[])";
    Query::new(setup.db.pool(2).unwrap(), rows).walk(WALK)
}

async fn audited(setup: &Setup, source: &dyn Source, repair: bool) -> AuditReport {
    let audit = Audit {
        page: 7,
        repair,
        ..Audit::default()
    };
    audit.run(source, &setup.index).await.unwrap()
}

const FILL: &str = "INSERT INTO note SELECT n, 'word' FROM generate_series(1, 20) n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_repair_all_readable_rows_and_name_the_unreadable_one() {
    let setup = setup().await;
    setup.run(FILL).await;
    let source = dividing(&setup);
    let filled = audited(&setup, &source, true).await;
    assert_eq!(
        (filled.missing, filled.repaired, filled.unreadable),
        (19, 19, 1)
    );
    assert_eq!(filled.unrepaired(), 1);
    assert!(filled.named.contains(&("7".into(), Difference::Unreadable)));
    let alone = [("7".to_owned(), Difference::Unreadable)];
    assert_eq!(audited(&setup, &source, false).await.named, alone);
    // The row counts once if the index has a document of it, older or newer.
    for version in [1, 1_000] {
        setup
            .index
            .inner
            .write(&[write("7", version, "word")])
            .await
            .unwrap();
        assert_eq!(audited(&setup, &source, true).await.named, alone);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_with_impossible_ids_are_deleted_as_orphans() {
    let setup = setup().await;
    setup.run(FILL).await;
    let table = Table::new(setup.db.pool(2).unwrap(), "note");
    assert_eq!(audited(&setup, &table, true).await.repaired, 20);
    let strange = ["abc", "99999999999999999999"].map(|id| write(id, 3, "word"));
    setup.index.inner.write(&strange).await.unwrap();
    let found = audited(&setup, &table, false).await;
    assert_eq!((found.orphaned, found.differences()), (2, 2));
    assert_eq!(found.documents, 22);
    let found = audited(&setup, &table, true).await;
    assert_eq!((found.orphaned, found.repaired), (2, 2));
    assert!(audited(&setup, &table, false).await.is_equal());
    assert_eq!(setup.found("word").await.len(), 20);
    // If only the failing statement could find the row, the document is named and not deleted.
    setup
        .index
        .inner
        .write(&[write("abd", 3, "word")])
        .await
        .unwrap();
    let rows = "SELECT id::text, posthaste_version, jsonb_build_object('body', body) FROM note \
                WHERE id = ANY ($1::bigint[])";
    let query = Query::new(setup.db.pool(2).unwrap(), rows).walk(WALK);
    let found = audited(&setup, &query, true).await;
    assert_eq!(found.named, [("abd".to_owned(), Difference::Unreadable)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_skip_only_the_failing_row() {
    let setup = setup().await;
    setup.run(FILL).await;
    let ids: Vec<String> = (1..=20).rev().map(|n| n.to_string()).collect();
    let rows = rows_of(&dividing(&setup), &ids).await.unwrap();
    let shown: Vec<&str> = rows.iter().map(|row| &*row.id).collect();
    let expected: Vec<&String> = ids.iter().filter(|id| *id != "7").collect();
    assert_eq!(shown, expected);
    assert!(rows.iter().all(|row| matches!(row.body, Body::Document(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_any_class_delays_only_its_row() {
    let setup = setup().await;
    setup.run(FILL).await;
    // The inner query returns two rows for the seventh row.
    let rows = "SELECT id::text, posthaste_version, jsonb_build_object('body', body, 'n', \
                (SELECT g FROM generate_series(1, CASE id WHEN 7 THEN 2 ELSE 1 END) g)) \
                FROM note WHERE id = ANY ($1::bigint[])";
    let versions =
        "SELECT id::text, posthaste_version, true FROM note WHERE id = ANY ($1::bigint[])";
    let source = Query::new(setup.db.pool(2).unwrap(), rows).versions(versions);
    let (worker, _) = setup.start(setup.sync_of(source)).await;
    let failed = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '7' AND attempt > 0 \
                  AND last_error LIKE '%more than one row%'";
    eventually(SOON, "all others are done", async || {
        Ok(unfinished(&setup.client).await == 1 && number(&setup.client, failed).await == 1)
    })
    .await
    .unwrap();
    assert_eq!(setup.found("word").await.len(), 19);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_outside_the_key_domain_block_no_other() {
    let setup = setup().await;
    setup
        .run(
            "CREATE DOMAIN short AS text CHECK (length(VALUE) < 5); \
             CREATE TABLE short_note (id short PRIMARY KEY, body text); \
             SELECT posthaste.sync_table('short_note', delay => '0'); \
             INSERT INTO short_note VALUES ('a', 'word')",
        )
        .await;
    let table = Table::new(setup.db.pool(2).unwrap(), "short_note");
    let ids = ["much too long".to_owned(), "a".to_owned()];
    let rows = rows_of(&table, &ids).await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_do_not_depend_on_session_settings() {
    let setup = setup().await;
    setup
        .run(
            "CREATE TABLE moment (id bigint PRIMARY KEY, at timestamptz, took interval, f float8); \
             SELECT posthaste.sync_table('moment'); \
             INSERT INTO moment VALUES (1, '2026-11-26 10:00Z', '90 min', 0.1::float8 + 0.2)",
        )
        .await;
    let table = Table::new(setup.db.pool(2).unwrap(), "moment");
    let mut rows = rows_of(&table, &["1".to_owned()]).await.unwrap();
    let Body::Document(before) = rows.remove(0).body else {
        panic!("there is no document");
    };
    let name = setup.db.name();
    for setting in [
        "timezone = 'Asia/Kolkata'",
        "intervalstyle = 'iso_8601'",
        "extra_float_digits = -5",
    ] {
        setup
            .run(&format!("ALTER DATABASE \"{name}\" SET {setting}"))
            .await;
    }
    let table = Table::new(setup.db.pool(2).unwrap(), "moment");
    let mut rows = rows_of(&table, &["1".to_owned()]).await.unwrap();
    assert!(matches!(rows.remove(0).body, Body::Document(after) if after == before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unindexable_documents_are_discarded_with_the_reason() {
    let setup = setup().await;
    // Too many words for a tsvector.
    setup
        .run(
            "INSERT INTO note VALUES (1, 'word'); \
             INSERT INTO note SELECT 2, string_agg(md5(n::text), ' ') \
               FROM generate_series(1, 60000) n",
        )
        .await;
    let (worker, _) = setup.start(setup.sync()).await;
    let given_up = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '2' \
                    AND state = 'discarded' AND last_error LIKE '%too long for tsvector%'";
    eventually(SOON, "it is given up", async || {
        Ok(unfinished(&setup.client).await == 1 && number(&setup.client, given_up).await > 0)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
    assert_eq!(setup.found("word").await, ["1"]);
    let lagging = posthaste_sync::lagging_syncs(&setup.client).await.unwrap();
    let problems = &lagging["note"].problems;
    assert!(problems.iter().any(|one| one.given_up), "{problems:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_too_large_for_a_document_are_discarded_and_named() {
    let setup = setup().await;
    // A string of jsonb must be smaller than 256 MiB.
    setup
        .run("INSERT INTO note VALUES (1, 'word'), (2, repeat('x', 268435456)), (3, 'word')")
        .await;
    let (worker, _) = setup.start(setup.sync()).await;
    let given_up = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '2' \
                    AND state = 'discarded' \
                    AND last_error LIKE 'the row 2 is too large for a document: %jsonb%'";
    eventually(SOON, "it is given up", async || {
        Ok(unfinished(&setup.client).await == 1 && number(&setup.client, given_up).await > 0)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
    assert_eq!(setup.found("word").await, ["1", "3"]);
}
