//! The ready log: segments rotate, are sealed and truncated, whatever is pinned, paused or still
//! running.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste::{Config, NewJob, Outcome, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_postgres::Client;

use crate::support::{
    SOON, all_done, connected, count, database, number, quick, unfinished, worker,
};

/// Settings under which a segment is full after a few hundred jobs.
fn small() -> Config {
    Config {
        segment_bytes: 200_000,
        ..quick()
    }
}

async fn segments(client: &Client) -> (i64, i64, i64) {
    let row = client
        .query_one(
            "SELECT ready_low, ready_scan, ready_current FROM posthaste.segments()",
            &[],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

/// Returns the bytes of all relations of the store.
async fn bytes(client: &Client) -> i64 {
    client
        .one(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c \
             WHERE c.relnamespace = 'posthaste'::regnamespace AND c.relkind = 'r'",
        )
        .await
        .unwrap()
}

/// Enqueues jobs of a queue in pieces until this many segments have been truncated.
async fn churn_until_truncated(client: &Client, queue: &str, target: i64) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while segments(client).await.0 < target {
        assert!(
            std::time::Instant::now() < deadline,
            "the ready log does not rotate: {:?}",
            segments(client).await
        );
        client
            .execute(
                "INSERT INTO posthaste.job (name, queue) SELECT 'n', $1 \
                 FROM generate_series(1, 300)",
                &[&queue],
            )
            .await
            .unwrap();
        let pending = format!(
            "SELECT count(*) FROM posthaste.job WHERE queue = '{queue}' \
             AND state IN ('available', 'running')"
        );
        eventually(SOON, "the churn is worked off", async || {
            Ok(number(client, &pending).await == 0)
        })
        .await
        .unwrap();
    }
}

async fn start(db: &TestDb) -> posthaste::WorkerHandle {
    worker(&db.pool(4).unwrap())
        .config(small())
        .queue("default", 8)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn truncation_under_a_pinned_horizon_leaves_no_dead_tuples() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let pin = db.client().await?;
        pin.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            .await?;
        let worker = start(&db).await;
        churn_until_truncated(&client, "default", 6).await;
        let held: bool = client
            .one(
                "SELECT bool_or(backend_xmin IS NOT NULL AND state = 'idle in transaction') \
                 FROM pg_stat_activity WHERE datname = current_database()",
            )
            .await?;
        assert!(held, "the horizon was pinned all the time");
        worker.stop().await?;
        let dead: i64 = client
            .one(
                "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables \
                 WHERE relname ~ \
                 '^(ready|claim|job_done|closed_unclaimed|batch_done|batch_split|scheduled|\
                 promote_cursor)_[0-9]$'",
            )
            .await?;
        assert_eq!(dead, 0, "nothing on the hot path is updated or deleted");
        pin.run("COMMIT").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_locks_the_slots_costs_only_space() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let reader = db.client().await?;
    // What pg_dump does: ACCESS SHARE on every table of the database, for as long as it runs.
    reader
        .run(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM posthaste.job; \
             SELECT count(*) FROM posthaste.claim_0, posthaste.job_done_0, \
             posthaste.closed_unclaimed_0",
        )
        .await?;
    let worker = start(&db).await;
    let deadline = std::time::Instant::now() + SOON;
    let mut full = 0;
    // Until the ready log is full, and for a while longer.
    while full < 5 {
        assert!(
            std::time::Instant::now() < deadline,
            "the ready log does not fill"
        );
        client
            .run("INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 300)")
            .await?;
        all_done(&client).await;
        full += i32::from(segments(&client).await.2 >= 3);
    }
    eventually(SOON, "everything but the last slot is sealed", async || {
        Ok(segments(&client).await == (0, 3, 3))
    })
    .await
    .expect("claims read one slot only, and nothing was truncated");
    reader.run("COMMIT").await?;
    churn_until_truncated(&client, "default", 4).await;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unconsumed_jobs_do_not_pin_the_ring() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    for n in 0..20 {
        client
            .run(&format!(
                "INSERT INTO posthaste.job (name, queue, kwargs) \
                 SELECT 'n', 'paused', jsonb_build_object('n', {n} * 100 + g) \
                 FROM generate_series(1, 100) g"
            ))
            .await?;
    }
    let worker = start(&db).await;
    churn_until_truncated(&client, "default", 6).await;
    let size = bytes(&client).await;
    churn_until_truncated(&client, "default", 11).await;
    let later = bytes(&client).await;
    assert!(
        later < size + size / 2,
        "the store grew from {size} to {later} bytes beside a paused queue"
    );
    assert_eq!(
        count(&client, "available").await,
        2000,
        "nothing was lost on the way"
    );
    worker.stop().await?;

    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let resumed = self::worker(&db.pool(4)?)
        .config(small())
        .queue("paused", 1)
        .handler("n", move |_, job| {
            let n = job
                .kwargs::<serde_json::Value>()
                .map(|kwargs| kwargs["n"].as_i64());
            seen.lock().unwrap().push(n.unwrap().unwrap());
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    all_done(&client).await;
    let order = order.lock().unwrap().clone();
    assert_eq!(
        order,
        (1..=2000).collect::<Vec<i64>>(),
        "the lane's order survived being moved to the overflow"
    );
    // The rows in the overflow are dead now, and its space is freed.
    eventually(SOON, "the overflow slots are empty", async || {
        Ok(client
            .one::<i64>(
                "SELECT pg_relation_size('posthaste.ready_4') + \
                 pg_relation_size('posthaste.ready_5')",
            )
            .await?
            == 0)
    })
    .await?;
    resumed.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn long_running_jobs_do_not_pin_their_segment() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client.run("CREATE TABLE effect (id bigint)").await?;
    let gate = Arc::new(Semaphore::new(0));
    let running = Arc::new(AtomicI64::new(0));
    let (held, seen, pool) = (Arc::clone(&gate), Arc::clone(&running), db.pool(8)?);
    let inner = pool.clone();
    let worker = worker(&pool)
        .config(small())
        .queue("default", 8)
        .queue("long", 4)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .handler("long", move |context, job| {
            let (held, seen, pool) = (Arc::clone(&held), Arc::clone(&seen), inner.clone());
            async move {
                seen.fetch_add(1, Ordering::SeqCst);
                held.acquire().await?.forget();
                match job.kwargs::<serde_json::Value>()?["end"].as_str() {
                    Some("done") => Ok(Outcome::Done),
                    Some("retry") => Ok(Outcome::Retry {
                        after: Some(Duration::from_secs(3600)),
                    }),
                    _ => {
                        let mut client = pool.get().await?;
                        let tx = client.transaction().await?;
                        tx.execute("INSERT INTO effect VALUES ($1)", &[&job.id.0])
                            .await?;
                        context.complete_in(&tx).await?;
                        tx.commit().await?;
                        Ok(Outcome::Done)
                    }
                }
            }
        })
        .start()
        .await?;
    for end in ["done", "retry", "in transaction"] {
        enqueue(
            &client,
            &NewJob::new("long", &json!({"end": end}))?.queue("long"),
        )
        .await?;
    }
    eventually(SOON, "three long jobs run", async || {
        Ok(running.load(Ordering::SeqCst) == 3)
    })
    .await?;
    churn_until_truncated(&client, "default", 5).await;
    let in_table: i64 = client
        .one("SELECT count(*) FROM posthaste.in_flight WHERE state = 'running'")
        .await?;
    assert_eq!(in_table, 3);
    gate.add_permits(3);
    eventually(SOON, "they end under the fence they had", async || {
        Ok((unfinished(&client).await, count(&client, "retrying").await) == (1, 1))
    })
    .await?;
    let effects: i64 = client.one("SELECT count(*) FROM effect").await?;
    assert_eq!(
        (effects, running.load(Ordering::SeqCst)),
        (1, 3),
        "each ran once"
    );
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn sessions_verify_a_recreated_store_again() -> TestResult {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await?;
    let claimed = |batch: i64| {
        format!(
            "INSERT INTO posthaste.claim_4 (batch, worker, from_xid, from_id, to_xid, to_id, \
                                            priority, n, exhausted, token, queue, lo, hi) \
             SELECT {batch}, 1, '0', 0, coalesce(max(xid), '0'), coalesce(max(id), 0), 0, \
                    count(*), true, gen_random_uuid(), 'q', '1:1:', pg_current_snapshot() \
               FROM posthaste.ready_4"
        )
    };
    let reclaim = "SELECT posthaste.reclaim_overflow(0, 1000, 0)";
    client.run(&claimed(9_000)).await?;
    client
        .run("INSERT INTO posthaste.batch_done_4 VALUES (9000, 0)")
        .await?;
    let spent: Option<String> = client.one(reclaim).await?;
    assert_eq!(spent, None, "it is verified, and truncated");
    client.run("DROP SCHEMA posthaste CASCADE").await?;
    posthaste::migrate(&mut client).await?;
    client
        .run(
            "INSERT INTO posthaste.store (slot, queue, name, expires_at, kwargs_bytes) \
             VALUES (4, 'q', 'n', now() + interval '1 day', 2)",
        )
        .await?;
    client.run(&claimed(1)).await?;
    let open: Option<String> = client.one(reclaim).await?;
    assert_eq!(open.as_deref(), Some("open"));
    let there = "SELECT count(*) FROM posthaste.ready_4";
    assert_eq!(number(&client, there).await, 1);
    Ok(())
}
