//! Without a definition, an index is created with mappings of the column types; and documents that
//! another client deleted are written again.

use std::time::Duration;

use posthaste_elastic::Operation;
use posthaste_sync::{
    Audit, Elastic, Index as _, Pass, Proof, SyncOutcome, SyncRequest, Table, fill,
};
use posthaste_testkit::receivers::{OpenSearch, Receiver, are_here};
use posthaste_testkit::{PgVersion, Sql as _, TestResult};
use serde_json::{Value, json};

use super::{alias, client};
use crate::support::{connected, database};
use crate::sync::NOTES;

/// The first row would make a server guess wrong types: a date, a whole number.
const THINGS: &str = r#"CREATE TYPE kind AS ENUM ('red', 'blue');
    CREATE DOMAIN label AS text CHECK (length(VALUE) < 99);
    CREATE TABLE thing (id bigint PRIMARY KEY, title text, price numeric, part real, many integer[],
      labels label[], at timestamptz, day date, is_old boolean, kind kind, code uuid, more jsonb,
      net inet, span interval, bytes bytea, days daterange);
    SELECT posthaste.sync_table('thing', delay => '0');
    INSERT INTO thing VALUES
      (1, '2026-01-01', 10, 1, '{1}', '{2026-01-01}', '2026-01-01Z', '2026-01-01', true, 'red',
       '00000000-0000-0000-0000-000000000001', '{"a": "2026-01-01", "n": 1}', '10.0.0.1/8',
       '1 day', '\x01', '[2026-01-01,2026-02-01)'),
      (2, 'Shopping list', 10.5, 'NaN', '{2,3}', '{Ideas}', 'infinity', '-infinity', false, 'blue',
       '00000000-0000-0000-0000-000000000002', '{"a": "words", "n": 1.5}', '::1',
       '-1 year', '\xff', 'empty'),
      (3, 'Ideas', 0.25, 'Infinity', '{}', NULL, '0044-03-15 00:00:00Z BC', NULL, NULL, NULL, NULL,
       '{"a": null, "n": 2}', NULL, NULL, NULL, NULL)"#;

fn requests(ids: impl IntoIterator<Item = i64>) -> Vec<SyncRequest> {
    let request = |n: i64| SyncRequest {
        id: n.to_string(),
        ..SyncRequest::default()
    };
    ids.into_iter().map(request).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undefined_mappings_follow_the_column_types() {
    if !are_here("the types of columns", &[Receiver::OpenSearch]) {
        return;
    }
    let server = tokio::task::spawn_blocking(OpenSearch::shared);
    let server = client(&server.await.unwrap().unwrap().url());
    let db = database(PgVersion::any()).await;
    let rows = db.client().await.unwrap();
    rows.run(THINGS).await.unwrap();
    let table = Table::new(db.pool(2).unwrap(), "thing");
    let index = Elastic::new(server, alias());
    assert_eq!(fill(&table, &index).await.unwrap(), 3);
    let pass = Pass {
        source: &table,
        index: &index,
        proof: Proof::Searchable,
        bytes: 1 << 20,
    };
    let outcomes = pass.run(&requests(1..=3)).await;
    let is_written = |outcome: &SyncOutcome| matches!(outcome, SyncOutcome::Written(_));
    assert!(outcomes.iter().all(is_written), "{outcomes:?}");
    let outcomes = pass.run(&requests(1..=3)).await;
    let is_done = |outcome: &SyncOutcome| matches!(outcome, SyncOutcome::Done(_));
    assert!(outcomes.iter().all(is_done), "{outcomes:?}");
    let found = async |query: Value| {
        let mut found = index.search_by(&query, 10).await.unwrap();
        found.sort();
        found
    };
    for (query, ids) in [
        (
            json!({"range": {"price": {"gte": 10.2, "lte": 11}}}),
            vec!["2"],
        ),
        (json!({"term": {"price": 0}}), vec![]),
        (json!({"match": {"title": "list"}}), vec!["2"]),
        (json!({"term": {"title.keyword": "Ideas"}}), vec!["3"]),
        (json!({"match": {"labels": "ideas"}}), vec!["2"]),
        (json!({"term": {"many": 3}}), vec!["2"]),
        (json!({"term": {"kind": "blue"}}), vec!["2"]),
        (json!({"range": {"at": {"gte": "2026-01-01"}}}), vec!["1"]),
        (json!({"term": {"is_old": true}}), vec!["1"]),
        (json!({"range": {"more.n": {"gte": 1.2}}}), vec!["2", "3"]),
        (json!({"match": {"more.a": "words"}}), vec!["2"]),
        (json!({"term": {"bytes": "\\xff"}}), vec!["2"]),
    ] {
        assert_eq!(found(query.clone()).await, ids, "{query}");
    }
    let audit = Audit {
        contents: true,
        ..Audit::default()
    };
    let audited = audit.run(&table, &index).await.unwrap();
    assert!(audited.is_equal(), "{audited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_by_other_clients_are_repaired() -> TestResult {
    if !are_here("a deletion by another client", &[Receiver::OpenSearch]) {
        return Ok(());
    }
    let server = tokio::task::spawn_blocking(OpenSearch::shared);
    let server = client(&server.await?.unwrap().url());
    let (db, rows) = connected(PgVersion::any()).await?;
    rows.run(NOTES).await?;
    rows.run("INSERT INTO note SELECT n, 'n ' || n FROM generate_series(1, 9) n")
        .await?;
    let table = Table::new(db.pool(2)?, "note");
    let name = alias();
    let index = Elastic::new(server.clone(), name.clone())
        .definition(json!({"settings": {"index": {"gc_deletes": "6s"}}}));
    fill(&table, &index).await?;
    let repair = Audit {
        repair: true,
        ..Audit::default()
    };
    assert_eq!(repair.run(&table, &index).await?.repaired, 9);
    let delete = Operation::delete(&format!("{name}-1"), "4");
    server.write(&delete).await?;
    let pass = Pass {
        source: &table,
        index: &index,
        proof: Proof::Stored,
        bytes: 1 << 20,
    };
    let outcomes = pass.run(&requests([4, 5])).await;
    let [SyncOutcome::Rescheduled(reason), SyncOutcome::Done(_)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(reason.contains("another client has deleted"), "{reason}");
    let repaired = tokio::time::timeout(Duration::from_secs(60), repair.run(&table, &index));
    let repaired = repaired.await?.unwrap();
    assert_eq!(
        (repaired.missing, repaired.repaired),
        (1, 1),
        "{repaired:?}"
    );
    assert!(repaired.reasons.is_empty(), "{repaired:?}");
    assert_eq!(index.read(&["4".to_owned()], Proof::Stored).await?.len(), 1);
    Ok(())
}
