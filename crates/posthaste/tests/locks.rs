//! The server's lock table is small, and each closed batch takes a lock until its transaction ends:
//! no transaction of posthaste closes so many batches that it could never succeed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use posthaste::{Config, Outcome};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, reaches};
use tokio::sync::Semaphore;

use crate::support::{SOON, all_done, count, count_reaches, hand, migrated, quick, worker};

/// More open batches than the server has room for locks.
const BATCHES: i64 = 4_000;

/// Starts a server with the smallest lock table on which posthaste is expected to work.
fn server(version: PgVersion) -> PgServer {
    let settings = [
        ("max_connections", "30"),
        ("max_prepared_transactions", "0"),
        ("max_wal_senders", "0"),
        ("max_locks_per_transaction", "32"),
    ];
    PgServer::start(version, &settings).expect("a server")
}

/// Proves the hazard: one transaction cannot take a lock for each batch.
async fn has_no_room(db: &TestDb) -> bool {
    let locks = "SELECT pg_advisory_xact_lock(7, i) FROM generate_series(1, $1::bigint::integer) i";
    let client = db.client().await.unwrap();
    let refused = client.execute(locks, &[&BATCHES]).await;
    // The error is returned before the locks are released; the next answer comes after that.
    client.run("SELECT 1").await.unwrap();
    refused
        .is_err_and(|error| error.code() == Some(&tokio_postgres::error::SqlState::OUT_OF_MEMORY))
}

/// On both versions: planners of later ones have another join that would read all acknowledgements
/// again for each batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_dead_worker_with_thousands_of_batches_are_rescued_on_15() {
    is_rescued(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_dead_worker_with_thousands_of_batches_are_rescued_on_18() {
    is_rescued(PgVersion::V18).await;
}

async fn is_rescued(version: PgVersion) {
    let server = server(version);
    let db = migrated(&server).await;
    assert!(has_no_room(&db).await);
    let client = db.client().await.unwrap();
    let dying = hand(&client).await;
    let insert = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, $1::bigint)";
    client.execute(insert, &[&BATCHES]).await.unwrap();
    client
        .run(&format!(
            "DO $do$ BEGIN FOR i IN 1..{BATCHES} LOOP
               PERFORM posthaste.claim('default', '{{0}}', {dying}, gen_random_uuid(), 1,
                 1000000); COMMIT;
             END LOOP; END $do$"
        ))
        .await
        .unwrap();
    assert_eq!(count(&client, "running").await, BATCHES);
    let worker = worker(&db.pool(4).unwrap())
        .queue("another", 1)
        .handler("x", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    count_reaches(&client, "quarantined", BATCHES)
        .await
        .unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_batches_ending_together_are_all_closed() -> TestResult {
    let server = server(PgVersion::any());
    let db = migrated(&server).await;
    assert!(has_no_room(&db).await);
    let client = db.client().await?;
    let insert = "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, $1::bigint)";
    client.execute(insert, &[&BATCHES]).await?;
    let ready = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicI64::new(0));
    let (begins, gate) = (Arc::clone(&begun), Arc::clone(&ready));
    let worker = worker(&db.pool(4)?)
        .config(Config {
            // Each claim returns one job.
            claim_bytes: 1,
            ..quick()
        })
        // Twice as many slots: a worker that is half busy delays claims this small.
        .queue("default", 2 * BATCHES as usize)
        .handler("x", move |_, _| {
            let gate = Arc::clone(&gate);
            begins.fetch_add(1, Ordering::SeqCst);
            async move {
                gate.acquire().await?.forget();
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    reaches(SOON, "all of them run", BATCHES, async || {
        Ok(begun.load(Ordering::SeqCst))
    })
    .await?;
    ready.add_permits(BATCHES as usize);
    all_done(&client).await;
    worker.stop().await?;
    let closed = "SELECT (SELECT count(*) FROM posthaste.batch_done_0), (SELECT count(*) \
                  FROM posthaste.job_done_0)";
    let closed = client.query_one(closed, &[]).await?;
    assert_eq!(
        (closed.get::<_, i64>(0), closed.get::<_, i64>(1)),
        (BATCHES, 0),
        "whole batches, and jobs closed by themselves"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_jobs_in_thousands_of_lanes_are_all_expired() {
    let server = server(PgVersion::any());
    let db = migrated(&server).await;
    assert!(has_no_room(&db).await);
    let client = db.client().await.unwrap();
    let insert = "INSERT INTO posthaste.job (name, priority, expires_at)
                  SELECT 'x', i, now() - interval '1 s'
                    FROM generate_series(1, $1::bigint::integer) i";
    client.execute(insert, &[&BATCHES]).await.unwrap();
    let mut kept = 0;
    for _ in 0..BATCHES {
        let row = client
            .query_one("SELECT posthaste.expire(0, 5000)", &[])
            .await;
        let found: i64 = row.unwrap().get(0);
        if found == 0 {
            break;
        }
        kept += found;
    }
    assert_eq!(kept, BATCHES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_in_thousands_of_lanes_are_cancelled_in_parts() {
    for version in PgVersion::tried() {
        let server = server(version);
        let db = migrated(&server).await;
        assert!(has_no_room(&db).await);
        let (client, other) = (db.client().await.unwrap(), db.client().await.unwrap());
        let insert = "INSERT INTO posthaste.job (name, queue) SELECT 'x', \
                      'q' || lpad(i::text, 4, '0') FROM generate_series(1, $1::bigint) i";
        client.execute(insert, &[&BATCHES]).await.unwrap();
        // A claim that holds the 150th lane, and may next want a lane that the call has already
        // locked.
        let claims =
            "BEGIN; SELECT pg_advisory_xact_lock(1885893475, posthaste.lane_key('q0150', 0))";
        other.run(claims).await.unwrap();
        let cancel = "SELECT count(*) FILTER (WHERE state = 'cancelled'),
                        count(*) FILTER (WHERE state = 'available')
                        FROM posthaste.cancel_many(ARRAY(SELECT generate_series(1, $1::bigint)))";
        let cancel = async || {
            let row = client.query_one(cancel, &[&BATCHES]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        let first = tokio::time::timeout(SOON, cancel()).await;
        assert_eq!(
            first.expect("it waits"),
            (199, BATCHES - 199),
            "{version:?}"
        );
        other.run("ROLLBACK").await.unwrap();
        let mut calls = 1;
        while cancel().await.1 > 0 {
            calls += 1;
        }
        assert!(calls < 30, "{calls} calls");
        assert_eq!(count(&client, "cancelled").await, BATCHES);
    }
}
