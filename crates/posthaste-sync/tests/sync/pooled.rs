//! A sync in a program that has a pool of sqlx and no other driver.

use std::time::Duration;

use posthaste::Worker;
use posthaste_sync::{Audit, Index, IndexSync, Postgres, Source, Table, rows_of};
use posthaste_testkit::{PgVersion, TestResult, eventually};
use sqlx::PgPool;

use super::NOTES;
use crate::support::{SOON, database, quick};

async fn left(pool: &PgPool) -> i64 {
    let left = sqlx::query_scalar("SELECT count(*) FROM posthaste.job");
    left.fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlx_programs_can_sync_search_and_audit() -> TestResult {
    let db = database(PgVersion::any()).await;
    let pool = PgPool::connect(db.url()).await?;
    sqlx::raw_sql(NOTES).execute(&pool).await?;
    let (table, index) = (Table::new(&pool, "note"), Postgres::new(&pool, "note"));
    let sync = IndexSync::builder(table.clone(), index.clone());
    let sync = sync.period(Duration::from_millis(100)).start();
    let worker = Worker::builder(&pool)
        .config(quick())
        .consumer("sync.note", sync.unwrap())
        .start()
        .await?;
    let notes = "INSERT INTO note VALUES (1, 'the red fox'), (2, 'a red hen'), (3, 'blue')";
    sqlx::raw_sql(notes).execute(&pool).await?;
    eventually(SOON, "all jobs are done", async || {
        Ok(left(&pool).await == 0)
    })
    .await?;
    let mut found = index.search("red", 10).await?;
    found.sort();
    assert_eq!(found, ["1", "2"]);
    let rows = rows_of(&table, &found).await?;
    assert_eq!(rows.len(), 2, "{rows:?}");
    let audited = Audit::default().run(&table, &index).await?;
    assert!(audited.is_equal(), "{audited:?}");
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn invalid_pool_settings_fail_the_first_poll() {
    // The error depends on the feature rustls of posthaste: without it there is no TLS, with it the
    // file is missing.
    let demands = "postgres://ann@127.0.0.1:1/app?sslmode=verify-full&sslrootcert=/nowhere";
    let pool = PgPool::connect_lazy(demands).unwrap();
    let ids = ["1".to_owned()];
    let of_rows = Table::new(&pool, "note").versions(&ids).await.unwrap_err();
    let of_index = Postgres::new(&pool, "note").is_empty().await.unwrap_err();
    for reported in [of_rows.to_string(), of_index.to_string()] {
        assert!(
            reported.contains("TLS") || reported.contains("/nowhere"),
            "{reported}"
        );
    }
}
