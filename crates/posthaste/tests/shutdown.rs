//! Shutdown: a worker that stops gives back the jobs it could not finish, and no attempt is
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posthaste::{NewJob, Outcome, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};

use crate::support::{
    SOON, all_done, all_signed_off, completed_when, connected, count, count_reaches, unfinished,
    unfinished_reaches, worker,
};

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_running_jobs_and_releases_waiting_ones() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client
        .run("INSERT INTO posthaste.job (name) SELECT 'slow' FROM generate_series(1, 500)")
        .await?;
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicU64::new(0));
    let (held, seen) = (Arc::clone(&gate), Arc::clone(&started));
    let worker = worker(&db.pool(4)?)
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
        .await?;
    eventually(SOON, "four jobs run", async || {
        Ok(started.load(Ordering::SeqCst) == 4)
    })
    .await?;
    let stopping = tokio::spawn(worker.stop());
    count_reaches(&client, "running", 4).await?;
    gate.add_permits(4);
    stopping.await?.unwrap();
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
        .one("SELECT count(*) FROM posthaste.job WHERE attempt > 0")
        .await?;
    assert_eq!(counted, 0);
    assert!(all_signed_off(&client).await, "the worker signed off");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_unfinished_after_the_grace_period_are_released_without_an_attempt() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    for _ in 0..3 {
        enqueue(&client, &NewJob::new("endless", &json!({}))?).await?;
    }
    let worker = worker(&db.pool(4)?)
        .queue("default", 4)
        .handler("endless", |_, _| async {
            std::future::pending::<()>().await;
            Ok(Outcome::Done)
        })
        .shutdown_grace(Duration::from_millis(200))
        .start()
        .await?;
    count_reaches(&client, "running", 3).await?;
    let began = Instant::now();
    worker.stop().await?;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "the stop took {:?}",
        began.elapsed()
    );
    assert_eq!(count(&client, "available").await, 3);
    let counted: i64 = client
        .one("SELECT count(*) FROM posthaste.job WHERE attempt > 0")
        .await?;
    assert_eq!(counted, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_are_notified_of_shutdown() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    enqueue(&client, &NewJob::new("polite", &json!({}))?).await?;
    let begun = Arc::new(Notify::new());
    let worker = worker(&db.pool(4)?)
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
        .await?;
    begun.notified().await;
    worker.stop().await?;
    assert_eq!(unfinished(&client).await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_worker_runs_released_jobs() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    client
        .run("INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 3000)")
        .await?;
    let done = Arc::new(AtomicU64::new(0));
    for _ in 0..10 {
        let seen = Arc::clone(&done);
        let worker = worker(&db.pool(4)?)
            .queue("default", 4)
            .handler("n", move |_, job| {
                assert_eq!(job.attempt, 1);
                seen.fetch_add(1, Ordering::SeqCst);
                async { Ok(Outcome::Done) }
            })
            .start()
            .await?;
        let before = done.load(Ordering::SeqCst);
        eventually(SOON, "some progress", async || {
            Ok(done.load(Ordering::SeqCst) > before || unfinished(&client).await == 0)
        })
        .await?;
        worker.stop().await?;
    }
    let seen = Arc::clone(&done);
    let last = worker(&db.pool(4)?)
        .queue("default", 4)
        .handler("n", move |_, _| {
            seen.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    all_done(&client).await;
    last.stop().await?;
    assert_eq!(
        done.load(Ordering::SeqCst),
        3000,
        "each job once: a clean stop repeats nothing"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn open_completion_transactions_do_not_delay_acknowledgements() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(8)?;
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
        .await?;
    enqueue(&client, &NewJob::new("slow", &json!({}))?).await?;
    count_reaches(&client, "running", 1).await?;
    tokio::time::timeout(SOON, async {
        for _ in 0..5 {
            client
                .run("INSERT INTO posthaste.job (name) SELECT 'quick' FROM generate_series(1, 50)")
                .await
                .unwrap();
            unfinished_reaches(&client, 1).await.unwrap();
        }
    })
    .await?;
    release.send(true).unwrap();
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}
