//! Expiry: expired jobs are found and retained wherever they wait, and no client waits for it.

use posthaste::{Config, Outcome};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};

use crate::stress::store::Store;
use crate::support::{SOON, all_done, connected, database, quick, worker};

/// Counts the locks on lanes.
const LANES_LOCKED: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1885893475
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A queue that had no worker for long is served again: its expired jobs are closed in parts, and
/// no live job among them is skipped.
#[tokio::test]
async fn claims_over_many_expired_jobs_are_bounded() -> TestResult {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await?;
    store
        .say(
            "INSERT INTO posthaste.job (name, expires_at)
              SELECT 'old', CASE WHEN g % 12000 = 0 THEN now() + interval '1 day'
                ELSE now() - interval '1 s' END FROM generate_series(1, 30000) g",
        )
        .await?;
    let batches = "SELECT count(*) FROM posthaste.claim_0";
    let (mut before, mut come): (i64, usize) = (0, 0);
    for calls in 1.. {
        assert!(calls < 1000, "{come} jobs came");
        let (jobs, has_more) = store.claim_part(0, 1).await?;
        let now: i64 = store.value(batches, &[]).await?;
        assert!(now - before <= 10, "{} batches in a claim", now - before);
        before = now;
        come += jobs.len();
        store.finish(&jobs).await?;
        if jobs.is_empty() && !has_more {
            break;
        }
    }
    assert_eq!(come, 2, "jobs that had not expired");
    let kept: i64 = store
        .value(
            "SELECT count(*) FROM posthaste.dead WHERE state = 'expired'",
            &[],
        )
        .await?;
    assert_eq!(kept, 29_998);
    Ok(())
}

/// A claim that continues after an expired job meets a live one, and after it, in the window of
/// later snapshots, expired ones again.
#[tokio::test]
async fn claims_that_close_expired_jobs_skip_no_live_ones() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await.unwrap();
    let insert = "INSERT INTO posthaste.job (name, expires_at)
                  SELECT 'n', now() + CASE WHEN g % 2 = 0 THEN interval '1 day'
                    ELSE interval '-1 s' END FROM generate_series($1::integer, $2) g";
    store.client.execute(insert, &[&0, &4]).await.unwrap();
    let mut come = store.claim(1).await.unwrap();
    store.client.execute(insert, &[&5, &5]).await.unwrap();
    for _ in 0..3 {
        come.extend(store.claim(1).await.unwrap());
    }
    assert_eq!(come.len(), 3, "those that have not expired");
    store.finish(&come).await.unwrap();
    assert_eq!(store.unfinished().await.unwrap(), 0);
}

/// The row that indicates an unfinished claim is not a job.
#[tokio::test(flavor = "multi_thread")]
async fn workers_reach_a_job_enqueued_after_many_expired_ones() -> TestResult {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await?;
    store
        .say(
            "INSERT INTO posthaste.job (name, expires_at)
              SELECT 'old', CASE WHEN g = 12000 THEN now() + interval '1 day'
                ELSE now() - interval '1 s' END FROM generate_series(1, 12000) g",
        )
        .await?;
    let config = Config {
        maintenance: false,
        ..quick()
    };
    let worker = worker(&db.pool(2)?)
        .config(config)
        .queue("default", 1)
        .handler("old", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    eventually(SOON, "the last job is worked", async || {
        Ok(store.unfinished().await? == 0)
    })
    .await?;
    worker.stop().await?;
    let clean: bool = store
        .value(
            "SELECT clean FROM posthaste.worker ORDER BY id DESC LIMIT 1",
            &[],
        )
        .await?;
    assert!(clean, "no claim of it was in doubt");
    Ok(())
}

/// A scheduled slot is locked, so that expiry waits for it: by then it has released its locks on
/// lanes of the ready log.
#[tokio::test(flavor = "multi_thread")]
async fn expiry_locks_no_lane_while_it_scans_another_slot() -> TestResult {
    let db = database(PgVersion::any()).await;
    let (client, holder) = (db.client().await?, db.client().await?);
    client
        .run(
            "INSERT INTO posthaste.job (name, queue, expires_at)
             VALUES ('n', 'paused', now() - interval '1 s');
             INSERT INTO posthaste.job (name, scheduled_at) SELECT 'far', now() + interval '1 day'
               FROM generate_series(1, 100)",
        )
        .await?;
    holder
        .run("BEGIN; LOCK TABLE posthaste.scheduled_6 IN ACCESS EXCLUSIVE MODE")
        .await?;
    let worker = worker(&db.pool(2)?)
        .queue("another", 1)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    let stands = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                   WHERE NOT l.granted AND l.relation = 'posthaste.scheduled_6'::regclass
                     AND a.query LIKE '%posthaste.expire(%'";
    eventually(
        SOON,
        "expiry stands before the scheduled slot",
        async || Ok(client.one::<i64>(stands).await? == 1),
    )
    .await?;
    let kept = "SELECT count(*) FROM posthaste.dead WHERE state = 'expired'";
    let kept: i64 = client.one(kept).await?;
    let locked: i64 = client.one(LANES_LOCKED).await?;
    assert_eq!((kept, locked), (1, 0), "kept, lanes locked");
    holder.run("ROLLBACK").await?;
    worker.stop().await?;
    Ok(())
}

/// Jobs before a lane's cursor belong to its worker, done or not: expiry skips them and takes no
/// lock.
#[tokio::test]
async fn expiry_locks_no_lane_whose_expired_jobs_were_claimed() -> TestResult {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await?;
    store
        .say(
            "INSERT INTO posthaste.job (name, expires_at) SELECT 'n', now() + interval '1 hour' \
             FROM generate_series(1, 20)",
        )
        .await?;
    let (done, running) = (store.claim(10).await?, store.claim(10).await?);
    assert_eq!((done.len(), running.len()), (10, 10));
    store.done(&done).await?;
    store
        .say("UPDATE posthaste.ready_0 SET expires_at = clock_timestamp()")
        .await?;
    store.say("BEGIN").await?;
    let found: i64 = store.value("SELECT posthaste.expire(0, 100)", &[]).await?;
    let locked: i64 = store.value(LANES_LOCKED, &[]).await?;
    store.say("COMMIT").await?;
    assert_eq!((found, locked), (0, 0), "found, lanes locked");
    store.finish(&running).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_waiting_for_slow_runs_are_released() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (slow, begun) = tokio::sync::watch::channel(false);
    let worker = worker(&db.pool(4)?)
        .config(Config {
            shutdown_grace: std::time::Duration::ZERO,
            ..quick()
        })
        .queue("default", 2)
        .handler("*", move |_, _| {
            let is_slow = *begun.borrow();
            async move {
                if is_slow {
                    std::future::pending::<()>().await;
                }
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    // Runs that take no time justify a long queue in the worker.
    let put = "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 200)";
    client.run(put).await?;
    all_done(&client).await;
    slow.send(true).unwrap();
    client.run(put).await?;
    let states = "SELECT (SELECT count(*) FROM posthaste.job WHERE state = 'running'),
                         (SELECT count(*) FROM posthaste.job WHERE state = 'available')";
    let mut most = 0;
    eventually(SOON, "another worker may have all but two", async || {
        let (running, available): (i64, i64) = client.one(states).await?;
        most = most.max(running);
        Ok((running, available) == (2, 198))
    })
    .await?;
    assert!(most > 2, "there was no line");
    worker.stop().await?;
    Ok(())
}
