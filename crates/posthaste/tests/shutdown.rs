//! Shutdown: a worker that stops gives back the jobs it could not finish, and no attempt is
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste::{NewJob, Outcome, enqueue};
use posthaste_testkit::{PgVersion, eventually};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::support::{
    SOON, all_done, all_signed_off, completed_when, count, database, unfinished, worker,
};

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_running_jobs_and_releases_waiting_ones() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO posthaste.job (name) SELECT 'slow' FROM generate_series(1, 500)",
        )
        .await
        .unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicU64::new(0));
    let (held, seen) = (Arc::clone(&gate), Arc::clone(&started));
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 4)
        .handler("slow", move |_, _| {
            let (held, seen) = (Arc::clone(&held), Arc::clone(&seen));
            async move {
                seen.fetch_add(1, Ordering::SeqCst);
                held.acquire().await?.forget();
                Ok(Outcome::Done)
            }
        })
        .start()
        .await
        .unwrap();
    eventually(SOON, "four jobs run", async || {
        Ok(started.load(Ordering::SeqCst) == 4)
    })
    .await
    .unwrap();
    let stopping = tokio::spawn(worker.stop());
    eventually(SOON, "what waited is given back", async || {
        Ok(count(&client, "running").await == 4)
    })
    .await
    .unwrap();
    gate.add_permits(4);
    stopping.await.unwrap().unwrap();
    assert_eq!(
        started.load(Ordering::SeqCst),
        4,
        "nothing was started after the stop"
    );
    assert_eq!(
        (count(&client, "available").await, unfinished(&client).await),
        (496, 496)
    );
    let counted: i64 = client
        .query_one("SELECT count(*) FROM posthaste.job WHERE attempt > 0", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(counted, 0);
    assert!(all_signed_off(&client).await, "the worker signed off");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_unfinished_after_the_grace_period_are_released_without_an_attempt() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    for _ in 0..3 {
        enqueue(&client, &NewJob::new("endless", &json!({})).unwrap())
            .await
            .unwrap();
    }
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 4)
        .handler("endless", |_, _| async {
            std::future::pending::<()>().await;
            Ok(Outcome::Done)
        })
        .shutdown_grace(Duration::from_millis(200))
        .start()
        .await
        .unwrap();
    eventually(SOON, "three jobs run", async || {
        Ok(count(&client, "running").await == 3)
    })
    .await
    .unwrap();
    let began = Instant::now();
    worker.stop().await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "the stop took {:?}",
        began.elapsed()
    );
    assert_eq!(count(&client, "available").await, 3);
    let counted: i64 = client
        .query_one("SELECT count(*) FROM posthaste.job WHERE attempt > 0", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(counted, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_notified_of_shutdown() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    enqueue(&client, &NewJob::new("polite", &json!({})).unwrap())
        .await
        .unwrap();
    let begun = Arc::new(Notify::new());
    let worker = worker(&db.pool(4).unwrap())
        .queue("default", 1)
        .handler("polite", {
            let begun = begun.clone();
            move |context, _| {
                let begun = begun.clone();
                async move {
                    begun.notify_one();
                    context.stopping().await;
                    Ok(Outcome::Done)
                }
            }
        })
        .start()
        .await
        .unwrap();
    begun.notified().await;
    worker.stop().await.unwrap();
    assert_eq!(unfinished(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_worker_runs_released_jobs() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    client
        .batch_execute("INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 3000)")
        .await
        .unwrap();
    let done = Arc::new(AtomicU64::new(0));
    for _ in 0..10 {
        let seen = Arc::clone(&done);
        let worker = worker(&db.pool(4).unwrap())
            .queue("default", 4)
            .handler("n", move |_, job| {
                assert_eq!(job.attempt, 1);
                seen.fetch_add(1, Ordering::SeqCst);
                async { Ok(Outcome::Done) }
            })
            .start()
            .await
            .unwrap();
        let before = done.load(Ordering::SeqCst);
        eventually(SOON, "some progress", async || {
            Ok(done.load(Ordering::SeqCst) > before || unfinished(&client).await == 0)
        })
        .await
        .unwrap();
        worker.stop().await.unwrap();
    }
    let seen = Arc::clone(&done);
    let last = worker(&db.pool(4).unwrap())
        .queue("default", 4)
        .handler("n", move |_, _| {
            seen.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .unwrap();
    all_done(&client).await;
    last.stop().await.unwrap();
    assert_eq!(
        done.load(Ordering::SeqCst),
        3000,
        "each job once: a clean stop repeats nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn open_completion_transactions_do_not_delay_acknowledgements() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let pool = db.pool(8).unwrap();
    let inner = pool.clone();
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = worker(&pool)
        .queue_config(posthaste::QueueConfig {
            timeout: Duration::from_millis(300),
            ..posthaste::QueueConfig::new("default", 4)
        })
        .handler("quick", |_, _| async { Ok(Outcome::Done) })
        .handler("slow", move |context, _| {
            completed_when(released.clone(), inner.clone(), context)
        })
        .start()
        .await
        .unwrap();
    enqueue(&client, &NewJob::new("slow", &json!({})).unwrap())
        .await
        .unwrap();
    eventually(SOON, "it runs", async || {
        Ok(count(&client, "running").await == 1)
    })
    .await
    .unwrap();
    tokio::time::timeout(SOON, async {
        for _ in 0..5 {
            client
                .batch_execute(
                    "INSERT INTO posthaste.job (name) SELECT 'quick' FROM generate_series(1, 50)",
                )
                .await
                .unwrap();
            eventually(SOON, "the quick ones are done", async || {
                Ok(unfinished(&client).await == 1)
            })
            .await
            .unwrap();
        }
    })
    .await
    .unwrap();
    release.send(true).unwrap();
    all_done(&client).await;
    worker.stop().await.unwrap();
}
