//! Samples for charts: one per minute, taken by a worker or a console, rolled up, and always
//! bounded.

use posthaste::Outcome;
use posthaste_testkit::{PgVersion, Sql as _, TestDb, eventually};
use tokio_postgres::Client;

use crate::support::{SOON, all_done, database, number, worker};

const MORNING: &str = "2026-03-02 10:00:00Z";

/// Takes a sample this many seconds after ten o'clock of that morning.
async fn take(client: &Client, after: i32) -> bool {
    let sql = "SELECT posthaste.take_sample($1::text::timestamptz + make_interval(secs => $2))";
    let after = f64::from(after);
    let row = client.query_one(sql, &[&MORNING, &after]).await.unwrap();
    row.get(0)
}

async fn samples(client: &Client, span: i32) -> i64 {
    let sql = format!("SELECT count(DISTINCT at) FROM posthaste.sample WHERE span = {span}");
    number(client, &sql).await
}

/// Returns the state of a queue in the newest sample.
async fn newest(client: &Client, span: i16, queue: &str) -> (i64, i64, Option<f64>) {
    let sql = "SELECT come, available, oldest FROM posthaste.sample
                WHERE span = $1 AND queue = $2 ORDER BY at DESC LIMIT 1";
    let row = client.query_one(sql, &[&span, &queue]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

async fn enqueue(client: &Client, queue: &str, jobs: i32) {
    let sql = "INSERT INTO posthaste.job (name, queue)
               SELECT 'n', $1 FROM generate_series(1, $2)";
    client.execute(sql, &[&queue, &jobs]).await.unwrap();
}

async fn empty() -> (TestDb, Client) {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    (db, client)
}

#[tokio::test]
async fn each_minute_has_one_sample_per_queue_and_one_total() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        enqueue(&client, "mail", 3).await;
        enqueue(&client, "web", 2).await;
        let mut taken = Vec::new();
        for after in [10, 11, 59, 60, 119] {
            taken.push(take(&client, after).await);
        }
        assert_eq!(taken, [true, false, false, true, false]);
        assert_eq!(samples(&client, 1).await, 2);
        assert_eq!(newest(&client, 1, "mail").await.0, 3);
        let (come, available, oldest) = newest(&client, 1, "").await;
        assert_eq!((come, available), (5, 5));
        assert_eq!(oldest, Some(0.0), "it was not enqueued before that morning");
    }
}

#[tokio::test]
async fn empty_stores_are_sampled() {
    let (_db, client) = empty().await;
    assert!(take(&client, 0).await);
    assert_eq!(newest(&client, 1, "").await, (0, 0, None));
    assert!(!take(&client, 30).await);
}

#[tokio::test]
async fn samples_are_rolled_up_and_deleted_after_a_month() {
    let (_db, client) = empty().await;
    enqueue(&client, "mail", 1).await;
    // Rarely at first, as while no worker runs, then each minute; for most of the last day only the
    // sample that begins each ten minutes, since the others are deleted in any case.
    let month = "DO $$
        DECLARE
          v_at timestamptz := timestamptz '2026-03-02 10:00Z' - interval '30 days';
        BEGIN
          WHILE v_at <= '2026-03-02 10:00Z' LOOP
            PERFORM posthaste.take_sample(v_at);
            v_at := v_at + CASE WHEN v_at < '2026-02-22 10:00Z' THEN interval '6 hours'
                                WHEN v_at < '2026-03-01 08:00Z' THEN interval '31 min'
                                WHEN v_at BETWEEN '2026-03-01 09:00Z' AND '2026-03-02 08:30Z'
                                  THEN interval '10 min'
                                ELSE interval '1 min' END;
          END LOOP;
        END $$";
    client.run(month).await.unwrap();
    let rows = "SELECT max(n) FROM
                  (SELECT count(*) AS n FROM posthaste.sample GROUP BY queue) q";
    let rows = number(&client, rows).await;
    assert!(rows <= 400, "{rows} rows of a queue");
    for (span, least, most) in [(1, 61, 77), (10, 144, 157), (60, 168, 172)] {
        let there = samples(&client, span).await;
        assert!((least..=most).contains(&there), "{there} of {span} min");
    }
    let apart = "SELECT count(*) FROM (
                   SELECT at - lag(at) OVER (PARTITION BY span ORDER BY at) AS apart, span
                     FROM posthaste.sample
                    WHERE queue = '' AND at > '2026-03-01 10:00Z') s
                  WHERE apart <> make_interval(mins => span)";
    assert_eq!(
        number(&client, apart).await,
        0,
        "samples are not evenly apart"
    );
}

#[tokio::test]
async fn hourly_samples_show_backlogs_between_samples() {
    let (_db, client) = empty().await;
    assert!(take(&client, 0).await);
    enqueue(&client, "mail", 50).await;
    assert!(take(&client, 22 * 60).await);
    let cancel = "SELECT count(*) FROM posthaste.cancel_many(
                    ARRAY(SELECT id FROM posthaste.job))";
    assert_eq!(number(&client, cancel).await, 50);
    assert!(take(&client, 23 * 60).await);
    assert_eq!(newest(&client, 1, "mail").await.1, 0);
    assert!(take(&client, 60 * 60).await);
    assert_eq!(newest(&client, 1, "").await.1, 0);
    let (come, most, _) = newest(&client, 60, "mail").await;
    assert_eq!((come, most), (50, 50));
    assert_eq!(samples(&client, 60).await, 2);
}

#[tokio::test]
async fn samples_cover_the_hundred_largest_queues() {
    let (_db, client) = empty().await;
    let many = "INSERT INTO posthaste.job (name, queue)
                SELECT 'n', 'queue ' || g FROM generate_series(1, 1000) g";
    client.run(many).await.unwrap();
    enqueue(&client, "queue 777", 5).await;
    assert!(take(&client, 0).await);
    let rows = "SELECT count(*) FROM posthaste.sample WHERE span = 1";
    assert_eq!(number(&client, rows).await, 101);
    assert_eq!(newest(&client, 1, "queue 777").await.0, 6);
    assert_eq!(newest(&client, 60, "").await.0, 1_005, "all are in the sum");
}

#[tokio::test]
async fn concurrent_samplers_do_not_wait() {
    let (db, mut one) = empty().await;
    let other = db.client().await.unwrap();
    let first = one.transaction().await.unwrap();
    assert!(take(first.client(), 0).await);
    assert!(!take(&other, 1).await, "the other takes none");
    first.commit().await.unwrap();
    assert!(!take(&other, 2).await);
    assert_eq!(samples(&other, 1).await, 1);
    assert!(take(&other, 60).await, "the next minute is free");
}

#[tokio::test]
async fn samples_from_the_future_are_deleted_by_the_next_sample() {
    let (_db, client) = empty().await;
    assert!(take(&client, 0).await);
    assert!(take(&client, 86_400 * 3_650).await);
    assert!(take(&client, 120).await, "nobody waits for years");
    let ahead = "SELECT count(*) FROM posthaste.sample WHERE at > '2026-03-02 10:02Z'";
    assert_eq!(number(&client, ahead).await, 0);
}

#[tokio::test]
async fn old_snapshots_take_no_sample() {
    let (_db, client) = empty().await;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    client.run(begin).await.unwrap();
    assert!(!take(&client, 0).await);
    client.run("COMMIT").await.unwrap();
    assert!(take(&client, 0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_takes_samples_and_workers_report_wait_times() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    posthaste::grant_roles(&mut client).await.unwrap();
    let hour = "INSERT INTO posthaste.job (name, queue, enqueued_at, scheduled_at)
                SELECT 'n', 'default', now() - interval '1 hour', now() - interval '1 hour'
                  FROM generate_series(1, 3)";
    client.run(hour).await.unwrap();
    let pool = db.pool_as("posthaste_worker", 4).unwrap();
    let worker = worker(&pool).queue("default", 1);
    let worker = worker.handler("n", |_, _| async { Ok(Outcome::Done) });
    let worker = worker.start().await.unwrap();
    all_done(&client).await;
    eventually(SOON, "the leader has taken a sample", async || {
        let counted = "SELECT count(*) FROM posthaste.stats()
                     WHERE what = 'started_total' AND jobs > 0";
        Ok(samples(&client, 1).await > 0 && number(&client, counted).await > 0)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
    let next = "SELECT posthaste.take_sample(clock_timestamp() + interval '1 min')";
    client.run(next).await.unwrap();
    let sql = "SELECT done, started, waited FROM posthaste.sample
                WHERE span = 1 AND queue = 'default' ORDER BY at DESC LIMIT 1";
    let (done, started, waited): (i64, i64, i64) = client.one(sql).await.unwrap();
    assert_eq!((done, started), (3, 3));
    let hours = 3 * 3_600_000;
    assert!((hours..hours + 600_000).contains(&waited), "{waited} ms");
}
