//! Rescue and completion: which process may close a job whose worker died, or whose handler
//! completes it in its own transaction.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use futures_util::FutureExt as _;
use posthaste::consumer::{Consumer, Delivery};
use posthaste::{NewJob, Outcome, QueueConfig, enqueue};
use posthaste_testkit::{PgServer, PgVersion, Proxy, Sql as _, TestResult, eventually};
use serde_json::json;

use crate::support::{
    SOON, all_done, connected, count, count_reaches, counting, hand, migrated,
    quick_queue as queue, unfinished, unfinished_reaches, worker,
};

#[tokio::test(flavor = "multi_thread")]
async fn complete_in_commits_with_the_handlers_writes() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client.run("CREATE TABLE effect (id bigint)").await?;
    let pool = db.pool(8)?;
    let inner = pool.clone();
    let worker = worker(&pool)
        .queue_config(queue())
        .handler("write", move |context, job| {
            let pool = inner.clone();
            async move {
                let mut client = pool.get().await?;
                let tx = client
                    .build_transaction()
                    .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
                    .start()
                    .await?;
                tx.execute("INSERT INTO effect VALUES ($1)", &[&job.id.0])
                    .await?;
                context.complete_in(&tx).await?;
                // The first attempt rolls back although the handler returns `Done`: the job must
                // run again.
                if job.kwargs_json().contains("roll back") && !seen_before(job.id.0) {
                    tx.rollback().await?
                } else {
                    tx.commit().await?
                }
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    for n in 0..50 {
        let what = if n % 10 == 0 {
            json!({"do": "roll back"})
        } else {
            json!({})
        };
        enqueue(&client, &NewJob::new("write", &what)?).await?;
    }
    all_done(&client).await;
    let row = client
        .query_one("SELECT count(*), count(DISTINCT id) FROM effect", &[])
        .await?;
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, i64>(1)),
        (50, 50),
        "each effect once"
    );
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_returned_outcome_applies_only_if_complete_in_rolled_back() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(8)?;
    let inner = pool.clone();
    let worker = worker(&pool)
        .queue_config(queue())
        .handler("*", move |context, job| {
            let pool = inner.clone();
            async move {
                let mut client = pool.get().await?;
                let tx = client.transaction().await?;
                context.complete_in(&tx).await?;
                match job.name.strip_prefix("commit ") {
                    Some(_) => tx.commit().await?,
                    None => tx.rollback().await?,
                }
                match job.name.ends_with("fail") {
                    true => Err("too late".into()),
                    false => Ok(Outcome::Discard {
                        reason: "no".into(),
                    }),
                }
            }
        })
        .start()
        .await?;
    for name in ["fail", "discard", "commit fail", "commit discard"] {
        let job = NewJob::new(name, &json!({}))?.max_attempts(Some(1));
        enqueue(&client, &job).await?;
    }
    let kept = "SELECT array_agg(name || ' is ' || state ORDER BY name) FROM posthaste.job";
    let expected = ["discard is discarded".to_owned(), "fail is dead".to_owned()];
    eventually(SOON, "all have ended", async || {
        let kept: Option<Vec<String>> = client.one(kept).await?;
        let counted = posthaste::Client::new(&client).counters().await?;
        let completed: i64 = counted.jobs.iter().map(|one| one.completed_total).sum();
        Ok(kept.as_deref() == Some(&expected) && completed == 2)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

/// Blocks the engine's thread with its first claim until it is released.
struct Blocking(Mutex<mpsc::Receiver<()>>);

impl Consumer for Blocking {
    fn capacity(&self) -> usize {
        1
    }
    fn consume(&self, _claim: Vec<Delivery>) {
        let _ = self.0.lock().unwrap().recv();
    }
    fn give_back(&self) {}
    fn abort(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_blocked_engine_stops_its_heartbeat_and_is_rescued() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (release, released) = mpsc::channel();
    let blocked = worker(&db.pool(4)?)
        .consumer("default", Blocking(Mutex::new(released)))
        .start()
        .await?;
    enqueue(&client, &NewJob::new("stuck", &json!({}))?).await?;
    count_reaches(&client, "running", 1).await?;
    let (other, runs) = counting(&db).await;
    eventually(SOON, "the other worker has run it", async || {
        Ok(runs.load(Ordering::SeqCst) == 1)
    })
    .await?;
    drop(release);
    all_done(&client).await;
    blocked.stop().await?;
    other.stop().await?;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    Ok(())
}

/// Whether this was called before with the same id.
fn seen_before(id: i64) -> bool {
    static SEEN: std::sync::Mutex<Vec<i64>> = std::sync::Mutex::new(Vec::new());
    let mut seen = SEEN.lock().unwrap();
    let before = seen.contains(&id);
    seen.push(id);
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn rescue_skips_jobs_held_by_open_transactions_and_retries_later() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client
        .run("INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 10)")
        .await?;
    let dying = hand(&client).await;
    let token = "0bad0bad-0000-4000-8000-000000000000";
    let rows = client
        .query(
            &format!(
                "SELECT slot, batch, id FROM posthaste.claim('default', '{{0}}', $1, '{token}', \
                 10, 1000000)"
            ),
            &[&dying],
        )
        .await?;
    let (slot, batch, id): (i16, i64, i64) = (rows[3].get(0), rows[3].get(1), rows[3].get(2));
    // A handler of the dying worker is completing this job in its own transaction, which is still
    // open.
    let handler = db.client().await?;
    handler
        .run(&format!(
            "BEGIN; SELECT posthaste.settle({slot}::smallint, {batch}, '{token}', ARRAY[{id}], \
             ARRAY[0::smallint], NULL, NULL, NULL, NULL, NULL)"
        ))
        .await?;
    let rescued: i64 = client
        .one_with("SELECT posthaste.rescue($1, 0)", &[&dying])
        .await?;
    assert_eq!(rescued, 9, "everything but the job in the open transaction");
    handler.run("ROLLBACK").await?;
    let again: i64 = client
        .one_with("SELECT posthaste.rescue($1, 0)", &[&dying])
        .await?;
    assert_eq!(again, 1, "the next call finds it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_jobs_of_dead_workers_are_rescued() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    // A worker that claimed and died, long ago by its time stamp; and one that sends heartbeats
    // although its time stamp is old.
    client
        .run(
            "INSERT INTO posthaste.job (name) SELECT 'x' FROM generate_series(1, 20);
             INSERT INTO posthaste.worker (name, seen_at)
               VALUES ('dead', now() - interval '1 day'), ('slow', now() - interval '1 day')",
        )
        .await?;
    let ids: Vec<i64> = client
        .rows("SELECT id FROM posthaste.worker ORDER BY id")
        .await?;
    for id in &ids {
        client
            .query(
                "SELECT * FROM posthaste.claim('default', '{0}', $1, gen_random_uuid(), 10, \
                 1000000)",
                &[id],
            )
            .await?;
    }
    let (beating, slow) = (db.client().await?, ids[1]);
    let heartbeat = tokio::spawn(async move {
        loop {
            beating
                .execute(
                    "UPDATE posthaste.worker SET beat = beat + 1 WHERE id = $1",
                    &[&slow],
                )
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let worker = worker(&db.pool(4)?)
        .queue("default", 2)
        .handler("x", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    unfinished_reaches(&client, 10).await?;
    assert_eq!(
        count(&client, "running").await,
        10,
        "the slow one keeps its jobs"
    );
    heartbeat.abort();
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

/// As on a standby that was promoted before it received the last acknowledgement: the database
/// holds a claim that its worker takes for closed.
#[tokio::test]
async fn unanswered_claims_are_rescued_after_a_clean_exit() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let first = worker(&db.pool(4)?)
            .queue("default", 1)
            .handler("x", async |_, _| Ok(Outcome::Done))
            .start()
            .await?;
        eventually(SOON, "the worker is registered", async || {
            let known = client
                .query_opt("SELECT FROM posthaste.worker", &[])
                .await?;
            Ok(known.is_some())
        })
        .await?;
        client
            .run("SELECT posthaste.enqueue('x', queue => 'other')")
            .await?;
        let claimed = client
            .query(
                "SELECT c.id FROM posthaste.worker w, posthaste.claim('other', '{0}', w.id, \
                 gen_random_uuid(), 1, 1000) c",
                &[],
            )
            .await?;
        assert_eq!(claimed.len(), 1);
        first.stop().await?;
        assert_eq!(unfinished(&client).await, 1);

        let second = worker(&db.pool(4)?)
            .queue("other", 1)
            .handler("x", async |_, _| Ok(Outcome::Done))
            .start()
            .await?;
        all_done(&client).await;
        second.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn possibly_rescued_jobs_are_not_started() -> TestResult {
    let server = PgServer::shared(PgVersion::any())?;
    let db = migrated(server).await;
    let client = db.client().await?;
    let proxy = Proxy::start(server.address()).await?;
    let url = proxy.url(db.name()).parse()?;
    let manager = deadpool_postgres::Manager::new(url, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let (late, mut claims) = worker(&pool).claims(QueueConfig::new("default", 10));
    let late = late.start().await?;
    let five = "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 5)";
    client.run(five).await?;
    count_reaches(&client, "running", 5).await?;
    proxy.stall();
    let (other, runs) = counting(&db).await;
    all_done(&client).await;
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    other.stop().await?;
    // It has not been logged yet.
    assert!(claims.next().now_or_never().is_none(), "they were begun");
    proxy.restore().await?;
    let id = enqueue(&client, &NewJob::new("n", &json!({}))?).await?;
    let claim = tokio::time::timeout(SOON, claims.next()).await?;
    let claim = claim.unwrap();
    let jobs: Vec<_> = claim.jobs().map(|job| job.id).collect();
    assert_eq!(jobs, [id], "it works on");
    claim.complete();
    all_done(&client).await;
    late.stop().await?;
    Ok(())
}
