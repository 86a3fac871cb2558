//! Rows that are slow to make, or never made: a pass ends in time, its results count, and no row
//! waits for another.

use std::time::Duration;

use posthaste_sync::{Query, Source, SyncBuilder, Table};
use posthaste_testkit::{TestResult, eventually};

use super::{Setup, setup};
use crate::support::{SOON, all_done, number, unfinished};

/// Builds a sync whose documents take this long to make, and whose passes have this time limit.
fn slow(setup: &Setup, takes: &str, limit: Duration) -> SyncBuilder {
    let rows = format!(
        "SELECT id::text, posthaste_version, jsonb_build_object('body', body) \
           FROM note, LATERAL (SELECT pg_sleep({takes})) s WHERE id = ANY ($1::bigint[])"
    );
    let versions =
        "SELECT id::text, posthaste_version, true FROM note WHERE id = ANY ($1::bigint[])";
    let rows = Query::new(setup.db.pool(2).unwrap(), rows).versions(versions);
    setup.sync_of(rows).time_limit(limit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadably_slow_row_delays_only_itself_and_is_cancelled() -> TestResult {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(1, 100) n")
        .await;
    let stuck = "CASE id WHEN 41 THEN 100000 ELSE 0 END";
    let sync = slow(&setup, stuck, Duration::from_secs(12));
    let (worker, _) = setup.start(sync).await;
    let left = "SELECT count(*) FROM posthaste.job WHERE kwargs ->> 'id' = '41' AND attempt > 1 \
                AND last_error LIKE '%its row was not read within%'";
    eventually(SOON, "all others are done", async || {
        Ok(unfinished(&setup.client).await == 1 && number(&setup.client, left).await == 1)
    })
    .await?;
    worker.stop().await?;
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND wait_event = 'PgSleep'";
    eventually(SOON, "no statement goes on", async || {
        Ok(number(&setup.client, sleeping).await == 0)
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_rows_complete_although_no_pass_fits_all() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(1, 60) n")
        .await;
    let (worker, _) = setup.start(setup.sync()).await;
    all_done(&setup.client).await;
    worker.stop().await.unwrap();
    let before = setup.index.writes.lock().unwrap().len();
    setup
        .run("SELECT posthaste.sync('note', id::text, '0', force => true) FROM note")
        .await;
    assert_eq!(unfinished(&setup.client).await, 60);
    // The sleeps take three seconds in total, and a pass may take two.
    let sync = slow(&setup, "0.05 + 0 * id", Duration::from_secs(2));
    let (worker, sync) = setup.start(sync).await;
    all_done(&setup.client).await;
    assert!(sync.status().passes > 1);
    let forced = setup.index.writes.lock().unwrap().len() - before;
    assert!(forced >= 60, "{forced}");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fills_have_no_timeout() {
    let setup = setup().await;
    setup
        .run("INSERT INTO note SELECT n, 'note' FROM generate_series(1, 5000) n")
        .await;
    let name = setup.db.name();
    setup
        .run(&format!(
            "ALTER DATABASE \"{name}\" SET statement_timeout = '5ms'"
        ))
        .await;
    let table = Table::new(setup.db.pool(1).unwrap(), "note");
    assert_eq!(table.fill().await.unwrap(), 5_000);
    let jobs = "SELECT count(*) FROM posthaste.job WHERE tag = 'fill'";
    assert_eq!(number(&setup.client, jobs).await, 5_000);
}
