//! Keys of synced tables: their texts are the ids of documents, and are the same in every session.

use std::time::Duration;

use posthaste::Backoff;
use posthaste_sync::{Audit, IndexSync, Postgres, Table};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, reaches};

use crate::support::{SOON, connected, number, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_dependent_keys_are_refused() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "CREATE DOMAIN day AS date; CREATE DOMAIN name3 AS varchar(3); \
             CREATE TYPE colour AS ENUM ('red', 'grey', 'blue')",
        )
        .await?;
    let synced = async |table: &str, of: &str| {
        let made = format!(
            "CREATE TABLE {table} (id {of} PRIMARY KEY); SELECT posthaste.sync_table('{table}')"
        );
        client.batch_execute(&made).await
    };
    for of in [
        "date",
        "timestamp",
        "timestamptz",
        "interval",
        "bytea",
        "real",
        "double precision",
        "money",
        "int4[]",
        "daterange",
        "day",
    ] {
        let refused = synced("refused", of).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "22023", "{of}: {refused:?}");
    }
    for (n, (of, keys)) in [
        ("char(3)", "('UKA'), ('USA'), ('U')"),
        ("varchar(3)", "('UKA'), ('USA'), ('U')"),
        ("name3", "('UKA'), ('USA'), ('U')"),
        ("bit(3)", "('101'), ('100'), ('111')"),
        ("numeric(9, 2)", "(1), (1.5), (-3.25)"),
        ("colour", "('red'), ('grey'), ('blue')"),
        ("inet", "('10.0.0.1'), ('10.0.0.0/8'), ('::1')"),
        ("boolean", "(true), (false)"),
    ]
    .into_iter()
    .enumerate()
    {
        let t = format!("t{n}");
        let made = synced(&t, of).await;
        made.unwrap_or_else(|error| panic!("{of}: {error:?}"));
        let put = format!("INSERT INTO {t} VALUES {keys}");
        client.run(&put).await?;
        let all = number(&client, &format!("SELECT count(*) FROM {t}")).await;
        let jobs = format!(
            "SELECT count(*) FROM posthaste.job j JOIN {t} t ON t.id::text = j.kwargs ->> 'id' \
             WHERE j.queue = 'sync.{t}'"
        );
        assert_eq!(number(&client, &jobs).await, all, "{of}");
        let read = format!(
            "SELECT count(*) FROM posthaste.sync_rows('{t}', \
             (SELECT array_agg(id::text) FROM {t})) r JOIN {t} t ON t.id::text = r.id"
        );
        assert_eq!(number(&client, &read).await, all, "{of}");
        // The walk ends.
        let walked = format!(
            "WITH RECURSIVE w AS ( \
               (SELECT 1 AS n, p.id FROM posthaste.sync_page('{t}', NULL, 1) p) UNION ALL \
               SELECT w.n + 1, p.id FROM w, posthaste.sync_page('{t}', w.id, 1) p WHERE w.n < 9) \
             SELECT count(*) FROM w"
        );
        assert_eq!(number(&client, &walked).await, all, "{of}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differently_written_keys_are_different_ids() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    client
        .run(
            "CREATE TABLE t (id numeric PRIMARY KEY); SELECT posthaste.sync_table('t'); \
             INSERT INTO t VALUES (1.0); UPDATE t SET id = 1.00",
        )
        .await?;
    let gone = "SELECT count(*) FROM posthaste.job \
                WHERE kwargs ->> 'id' = '1.0' AND kwargs ? 'deleted'";
    assert_eq!(number(&client, gone).await, 1);
    let there = "SELECT count(*) FROM posthaste.job \
                 WHERE kwargs ->> 'id' = '1.00' AND NOT kwargs ? 'deleted'";
    assert!(number(&client, there).await >= 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_keys_compare_bytewise_under_case_insensitive_collations() -> TestResult {
    // This version has ICU.
    let (db, client) = connected(PgVersion::V15).await?;
    client
        .run(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', \
                                      deterministic = false); \
                 CREATE TABLE t (id text COLLATE ci PRIMARY KEY, body text); \
                 CREATE TABLE p (id text COLLATE ci, at integer, PRIMARY KEY (id, at)) \
                   PARTITION BY RANGE (at); \
                 CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (9); \
                 SELECT posthaste.sync_table('t', delay => '0'), posthaste.sync_table('p')",
        )
        .await?;
    for change in [
        "INSERT INTO t VALUES ('abc', 'one'); INSERT INTO p VALUES ('abc', 1)",
        "UPDATE t SET id = 'ABC'; UPDATE p SET id = 'ABC'",
    ] {
        client.run(change).await?;
    }
    for queue in ["sync.t", "sync.p"] {
        let gone = format!(
            "SELECT count(*) FROM posthaste.job WHERE queue = '{queue}' \
                 AND kwargs ->> 'id' = 'abc' AND kwargs ? 'deleted'"
        );
        assert_eq!(number(&client, &gone).await, 1, "{queue}");
    }
    // A row is found by its own text only, not by texts that compare as equal.
    for (ids, found) in [("{abc}", 0), ("{ABC}", 1), ("{abc,ABC,aBC}", 1)] {
        for read in ["sync_rows", "sync_versions"] {
            let rows = format!("SELECT count(*) FROM posthaste.{read}('t', '{ids}')");
            assert_eq!(number(&client, &rows).await, found, "{read} {ids}");
        }
    }
    // A fill job of the old document does not count as one of the new document.
    client
        .run(
            "UPDATE t SET id = 'abc'; SELECT posthaste.sync_fill('t'); \
                 UPDATE t SET id = 'ABC'; SELECT posthaste.sync_fill('t')",
        )
        .await?;
    let fills = "SELECT count(*) FROM posthaste.job WHERE tag = 'fill' AND queue = 'sync.t'";
    assert_eq!(number(&client, fills).await, 2);
    let raised = "SELECT posthaste.sync_raise('t', 1000, '{abc}')";
    assert_eq!(number(&client, raised).await, 0);

    let source = Table::new(db.pool(2)?, "t");
    let index = Postgres::new(db.pool(2)?, "t");
    let quick = Backoff {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(100),
    };
    let sync = IndexSync::builder(source.clone(), index.clone());
    let sync = sync.period(Duration::from_millis(100)).backoff(quick);
    let worker = worker(&db.pool(2)?).consumer("sync.t", sync.start().unwrap());
    let worker = worker.start().await?;
    let left = "SELECT count(*) FROM posthaste.job WHERE queue = 'sync.t' \
                    AND state NOT IN ('completed', 'cancelled')";
    reaches(SOON, "the jobs of t are done", 0, async || {
        Ok(number(&client, left).await)
    })
    .await?;
    worker.stop().await?;
    let found = Audit::default().run(&source, &index).await?;
    assert!(found.is_equal(), "{found:?}");
    Ok(())
}
