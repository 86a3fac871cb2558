//! Jobs of dead workers beside other work: they run alone, and they do run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste::{Outcome, QueueConfig};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::stress::store::Store;
use crate::support::{
    SOON, all_done, completed_when, connected, count, database, unfinished_reaches, worker,
};

/// Longer than quarantined jobs first wait for running jobs.
const LONG: Duration = Duration::from_secs(13);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_jobs_get_a_turn_beside_constantly_long_jobs() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    // Separate transactions: a claim sees what others have committed.
    for step in [
        "INSERT INTO posthaste.job (name) VALUES ('quarantined')",
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('default', '{0}', max(id), gen_random_uuid(), 10, 1000000) \
         FROM posthaste.worker",
        "INSERT INTO posthaste.job (name) VALUES ('long')",
    ] {
        client.run(step).await?;
    }
    let running = Arc::new(AtomicI64::new(0));
    let (beside, started) = (Arc::clone(&running), Arc::new(AtomicI64::new(0)));
    let (start, company) = (Arc::clone(&started), Arc::new(AtomicI64::new(-1)));
    let met = Arc::clone(&company);
    let worker = worker(&db.pool(4)?)
        .shutdown_grace(Duration::ZERO)
        .queue_config(QueueConfig {
            timeout: Duration::from_secs(60),
            ..QueueConfig::new("default", 200)
        })
        .handler("long", move |_, _| {
            let (running, started) = (Arc::clone(&running), Arc::clone(&start));
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                started.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(LONG).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(Outcome::Done)
            }
        })
        .handler("quarantined", move |_, _| {
            met.store(beside.load(Ordering::SeqCst), Ordering::SeqCst);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await?;
    eventually(LONG, "something runs", async || {
        Ok(count(&client, "running").await == 2)
    })
    .await?;
    client
        .run("SELECT posthaste.rescue(min(id), 0) FROM posthaste.worker")
        .await?;
    // From now on a job that has just begun is always running, unless claims pause.
    let enqueuer = db.client().await?;
    let steady = tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        loop {
            tick.tick().await;
            enqueuer
                .run("INSERT INTO posthaste.job (name) VALUES ('long')")
                .await
                .unwrap();
        }
    });
    eventually(LONG * 8, "the quarantined job is run", async || {
        Ok(company.load(Ordering::SeqCst) >= 0)
    })
    .await?;
    assert_eq!(company.load(Ordering::SeqCst), 0, "nothing ran beside it");
    let before = started.load(Ordering::SeqCst);
    assert!(before > 10, "others had their turn too: {before} of them");
    eventually(LONG * 4, "others go on afterwards", async || {
        Ok(started.load(Ordering::SeqCst) > before)
    })
    .await?;
    steady.abort();
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quarantined_jobs_do_not_wait_for_completions_in_open_transactions() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    quarantine(&client, "default", "quarantined").await;
    // The test decides when the quarantined job is due.
    for step in [
        "UPDATE posthaste.in_flight SET until = 'infinity'",
        "INSERT INTO posthaste.job (name) VALUES ('open')",
    ] {
        client.run(step).await?;
    }
    let pool = db.pool(4)?;
    let inner = pool.clone();
    let (release, released) = watch::channel(false);
    let worker = worker(&pool)
        .queue_config(QueueConfig {
            timeout: Duration::from_millis(300),
            ..QueueConfig::new("default", 4)
        })
        .handler("open", move |context, _| {
            completed_when(released.clone(), inner.clone(), context)
        })
        .handler("quarantined", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    eventually(
        SOON,
        "an acknowledgement waits for the transaction",
        async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'
                         AND query LIKE '%settle%'";
            let waiting = client.one::<i64>(waiting).await?;
            Ok(waiting > 0)
        },
    )
    .await?;
    let due =
        "UPDATE posthaste.in_flight SET until = clock_timestamp() WHERE state = 'quarantined'";
    assert_eq!(client.execute(due, &[]).await?, 1);
    unfinished_reaches(&client, 1).await?;
    assert_eq!(
        count(&client, "running").await,
        1,
        "the other is completed when its transaction ends"
    );
    release.send(true).unwrap();
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

/// The worker that gives a quarantined job back did not see it run alone: it stays quarantined, in
/// no batch with others.
#[tokio::test]
async fn released_quarantined_jobs_stay_quarantined() {
    let db = database(PgVersion::any()).await;
    let (store, dying) = (
        Store::new(db.url()).await.unwrap(),
        Store::new(db.url()).await.unwrap(),
    );
    dying.enqueue("quarantined", 0).await.unwrap();
    assert_eq!(dying.claim(1).await.unwrap().len(), 1);
    let rescue = "SELECT posthaste.rescue($1, 0)";
    let rescued: i64 = store.value(rescue, &[&dying.worker]).await.unwrap();
    assert_eq!(rescued, 1);
    for _ in 0..2 {
        let token = uuid::Uuid::new_v4();
        let claim = "SELECT id FROM posthaste.claim_quarantined('default', $1, $2)";
        let id: i64 = store.value(claim, &[&store.worker, &token]).await.unwrap();
        assert_eq!(count(&store.client, "running").await, 1);
        let give_back = "SELECT cardinality(posthaste.settle(-1::smallint, 0, $1, \
                         ARRAY[$2::bigint], ARRAY[8::smallint], NULL, NULL, NULL, NULL, NULL))";
        let ours: i32 = store.value(give_back, &[&token, &id]).await.unwrap();
        assert_eq!(ours, 1);
        assert_eq!(count(&store.client, "quarantined").await, 1);
        assert!(
            store.claim_all().await.unwrap().is_empty(),
            "it is handed out among others"
        );
    }
    let crashes = "SELECT crashes::integer FROM posthaste.in_flight";
    let crashes: i32 = store.value(crashes, &[]).await.unwrap();
    assert_eq!(
        crashes, 1,
        "nothing was forgotten, and nothing held against it"
    );
}

/// An ordered relay sends the jobs whose sender died in the order of the lane, wherever they are
/// stored.
#[tokio::test]
async fn quarantined_jobs_run_in_id_order_wherever_they_are_stored() {
    let db = database(PgVersion::any()).await;
    let (store, dying) = (
        Store::new(db.url()).await.unwrap(),
        Store::new(db.url()).await.unwrap(),
    );
    let mut ids = Vec::new();
    for name in ["runs for long", "given back", "in a batch"] {
        ids.push(dying.enqueue(name, 0).await.unwrap());
        let claimed = dying.claim(1).await.unwrap();
        if ids.len() == 1 {
            // As the truncation of a segment does with running jobs.
            let hold = "SELECT posthaste.move_running($1::integer, 0, 1)";
            let slot = i32::from(claimed[0].slot);
            let held: i64 = dying.value(hold, &[&slot]).await.unwrap();
            assert_eq!(held, 1);
        }
    }
    let rescue = "SELECT posthaste.rescue($1, 0)";
    let rescued: i64 = store.value(rescue, &[&dying.worker]).await.unwrap();
    assert_eq!(rescued, 3);
    let claim = "SELECT id FROM posthaste.claim_quarantined('default', $1, $2)";
    let mut run = Vec::new();
    for _ in 0..3 {
        let token = uuid::Uuid::new_v4();
        let id: i64 = store.value(claim, &[&store.worker, &token]).await.unwrap();
        run.push(id);
        if id == ids[1] && run.len() == 2 {
            let give_back = "SELECT cardinality(posthaste.settle(-1::smallint, 0, $1, \
                             ARRAY[$2::bigint], ARRAY[8::smallint], NULL, NULL, NULL, NULL, NULL))";
            let ours: i32 = store.value(give_back, &[&token, &id]).await.unwrap();
            assert_eq!(ours, 1);
        }
    }
    assert_eq!(
        run,
        [ids[0], ids[1], ids[1]],
        "the one given back is the next again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_jobs_of_unserved_queues_do_not_block_others() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    quarantine(&client, "audit", "killer").await;
    let (worker, mut claims) = worker(&db.pool(4)?).claims(QueueConfig::new("audit", 10));
    let worker = worker
        .queue("default", 2)
        .handler("quick", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    // Longer than the time between two polls for quarantined jobs.
    for _ in 0..4 {
        client
            .run("INSERT INTO posthaste.job (name) VALUES ('quick')")
            .await?;
        unfinished_reaches(&client, 1).await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert_eq!(count(&client, "quarantined").await, 1);
    let claim = tokio::time::timeout(SOON, claims.next()).await?;
    claim.expect("it is asked for").complete();
    all_done(&client).await;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantined_jobs_get_a_turn_beside_constant_claims() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    quarantine(&client, "audit", "killer").await;
    let others = "INSERT INTO posthaste.job (name, queue) SELECT 'n', 'audit' \
                  FROM generate_series(1, 100)";
    client.run(others).await.unwrap();
    let (worker, mut claims) = worker(&db.pool(4).unwrap()).claims(QueueConfig::new("audit", 10));
    let worker = worker.start().await.unwrap();
    let until_it_comes = async {
        loop {
            let claim = claims.next().await.expect("no stop");
            let has_come = claim.jobs().any(|job| &*job.name == "killer");
            let more = "INSERT INTO posthaste.job (name, queue) \
                        SELECT 'n', 'audit' FROM generate_series(1, 20)";
            client.run(more).await.unwrap();
            claim.complete();
            if has_come {
                return;
            }
        }
    };
    let came = tokio::time::timeout(SOON, until_it_comes).await;
    came.expect("it has its turn");
    worker.stop().await.unwrap();
}

/// Enqueues a job in the claim of a worker that has died.
async fn quarantine(client: &Client, queue: &str, name: &str) {
    let enqueue = format!("INSERT INTO posthaste.job (name, queue) VALUES ('{name}', '{queue}')");
    let claim = format!(
        "SELECT posthaste.claim('{queue}', '{{0}}', max(id), gen_random_uuid(), 10, 1000000) \
         FROM posthaste.worker"
    );
    // Separate transactions: a claim sees what others have committed.
    for step in [
        &*enqueue,
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        &claim,
        "SELECT posthaste.rescue(max(id), 0) FROM posthaste.worker",
    ] {
        client.run(step).await.unwrap();
    }
    assert_eq!(count(client, "quarantined").await, 1);
}
