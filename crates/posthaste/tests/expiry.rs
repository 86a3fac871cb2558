//! Expiry: expired jobs are found and retained wherever they wait, and no client waits for it.

use posthaste::{Config, Outcome};
use posthaste_testkit::{PgVersion, eventually};

use crate::stress::store::Store;
use crate::support::{SOON, all_done, database, quick, worker};

/// Counts the locks on lanes.
const LANES_LOCKED: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1885893475
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A queue that had no worker for long is served again: its expired jobs are closed in parts, and
/// no live job among them is skipped.
#[tokio::test]
async fn claims_over_many_expired_jobs_are_bounded() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await.unwrap();
    store
        .say(
            "INSERT INTO posthaste.job (name, expires_at)
              SELECT 'old', CASE WHEN g % 12000 = 0 THEN now() + interval '1 day'
                ELSE now() - interval '1 s' END FROM generate_series(1, 30000) g",
        )
        .await
        .unwrap();
    let batches = "SELECT count(*) FROM posthaste.claim_0";
    let (mut before, mut come): (i64, usize) = (0, 0);
    for calls in 1.. {
        assert!(calls < 1000, "{come} jobs came");
        let (jobs, has_more) = store.claim_part(0, 1).await.unwrap();
        let now: i64 = store.value(batches, &[]).await.unwrap();
        assert!(now - before <= 10, "{} batches in a claim", now - before);
        before = now;
        come += jobs.len();
        store.finish(&jobs).await.unwrap();
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
        .await
        .unwrap();
    assert_eq!(kept, 29_998);
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
async fn workers_reach_a_job_enqueued_after_many_expired_ones() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await.unwrap();
    store
        .say(
            "INSERT INTO posthaste.job (name, expires_at)
              SELECT 'old', CASE WHEN g = 12000 THEN now() + interval '1 day'
                ELSE now() - interval '1 s' END FROM generate_series(1, 12000) g",
        )
        .await
        .unwrap();
    let config = Config {
        maintenance: false,
        ..quick()
    };
    let worker = worker(&db.pool(2).unwrap())
        .config(config)
        .queue("default", 1)
        .handler("old", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    eventually(SOON, "the last job is worked", async || {
        Ok(store.unfinished().await? == 0)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
    let clean: bool = store
        .value(
            "SELECT clean FROM posthaste.worker ORDER BY id DESC LIMIT 1",
            &[],
        )
        .await
        .unwrap();
    assert!(clean, "no claim of it was in doubt");
}

/// A scheduled slot is locked, so that expiry waits for it: by then it has released its locks on
/// lanes of the ready log.
#[tokio::test(flavor = "multi_thread")]
async fn expiry_locks_no_lane_while_it_scans_another_slot() {
    let db = database(PgVersion::any()).await;
    let (client, holder) = (db.client().await.unwrap(), db.client().await.unwrap());
    client
        .batch_execute(
            "INSERT INTO posthaste.job (name, queue, expires_at)
             VALUES ('n', 'paused', now() - interval '1 s');
             INSERT INTO posthaste.job (name, scheduled_at) SELECT 'far', now() + interval '1 day'
               FROM generate_series(1, 100)",
        )
        .await
        .unwrap();
    holder
        .batch_execute("BEGIN; LOCK TABLE posthaste.scheduled_6 IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let worker = worker(&db.pool(2).unwrap())
        .queue("another", 1)
        .handler("n", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    let stands = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                   WHERE NOT l.granted AND l.relation = 'posthaste.scheduled_6'::regclass
                     AND a.query LIKE '%posthaste.expire(%'";
    eventually(
        SOON,
        "expiry stands before the scheduled slot",
        async || Ok(client.query_one(stands, &[]).await?.get::<_, i64>(0) == 1),
    )
    .await
    .unwrap();
    let kept = "SELECT count(*) FROM posthaste.dead WHERE state = 'expired'";
    let kept: i64 = client.query_one(kept, &[]).await.unwrap().get(0);
    let locked: i64 = client.query_one(LANES_LOCKED, &[]).await.unwrap().get(0);
    assert_eq!((kept, locked), (1, 0), "kept, lanes locked");
    holder.batch_execute("ROLLBACK").await.unwrap();
    worker.stop().await.unwrap();
}

/// Jobs before a lane's cursor belong to its worker, done or not: expiry skips them and takes no
/// lock.
#[tokio::test]
async fn expiry_locks_no_lane_whose_expired_jobs_were_claimed() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.url()).await.unwrap();
    store
        .say(
            "INSERT INTO posthaste.job (name, expires_at) SELECT 'n', now() + interval '1 hour' \
             FROM generate_series(1, 20)",
        )
        .await
        .unwrap();
    let (done, running) = (
        store.claim(10).await.unwrap(),
        store.claim(10).await.unwrap(),
    );
    assert_eq!((done.len(), running.len()), (10, 10));
    store.done(&done).await.unwrap();
    store
        .say("UPDATE posthaste.ready_0 SET expires_at = clock_timestamp()")
        .await
        .unwrap();
    store.say("BEGIN").await.unwrap();
    let found: i64 = store
        .value("SELECT posthaste.expire(0, 100)", &[])
        .await
        .unwrap();
    let locked: i64 = store.value(LANES_LOCKED, &[]).await.unwrap();
    store.say("COMMIT").await.unwrap();
    assert_eq!((found, locked), (0, 0), "found, lanes locked");
    store.finish(&running).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_waiting_for_slow_runs_are_released() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let (slow, begun) = tokio::sync::watch::channel(false);
    let worker = worker(&db.pool(4).unwrap())
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
        .await
        .unwrap();
    // Runs that take no time justify a long queue in the worker.
    let put = "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 200)";
    client.batch_execute(put).await.unwrap();
    all_done(&client).await;
    slow.send(true).unwrap();
    client.batch_execute(put).await.unwrap();
    let states = "SELECT (SELECT count(*) FROM posthaste.job WHERE state = 'running'),
                         (SELECT count(*) FROM posthaste.job WHERE state = 'available')";
    let mut most = 0;
    eventually(SOON, "another worker may have all but two", async || {
        let row = client.query_one(states, &[]).await?;
        let (running, available): (i64, i64) = (row.get(0), row.get(1));
        most = most.max(running);
        Ok((running, available) == (2, 198))
    })
    .await
    .unwrap();
    assert!(most > 2, "there was no line");
    worker.stop().await.unwrap();
}
