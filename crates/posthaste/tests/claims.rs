//! Whole claims instead of handlers, with the same guarantees for each job.

use std::time::Duration;

use posthaste::consumer::{Consumer, Delivery};
use posthaste::{Backoff, ClaimedJob, Claims, Outcome, QueueConfig, RetryLater, WorkerHandle};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};

use crate::lifecycle::{job, state};
use crate::support::{
    SOON, all_done, all_signed_off, connected, count, database, unfinished, worker,
};

/// Returns the settings of the queue `audit`: ten jobs at once, long delays between attempts.
fn audit() -> QueueConfig {
    QueueConfig {
        backoff: Backoff {
            base: Duration::from_secs(100),
            cap: Duration::from_secs(100),
        },
        ..QueueConfig::new("audit", 10)
    }
}

/// Starts a worker; the test takes its claims of the queue `audit`.
async fn audited(db: &TestDb) -> (Claims, WorkerHandle) {
    let (worker, claims) = worker(&db.pool(2).unwrap()).claims(audit());
    (claims, worker.start().await.unwrap())
}

/// Returns the jobs of the next claim.
async fn next(claims: &mut Claims) -> Vec<ClaimedJob> {
    let claim = tokio::time::timeout(SOON, claims.next()).await;
    let claim = claim.expect("something is claimed").expect("no stop");
    claim.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_claimed_and_completed_through_the_api() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let enqueue = "INSERT INTO posthaste.job (name, queue) SELECT 'n', 'audit' \
                       FROM generate_series(1, 35)";
        client.run(enqueue).await?;
        let (mut claims, worker) = audited(&db).await;
        let mut jobs = Vec::new();
        while jobs.len() < 35 {
            let claim = next(&mut claims).await;
            assert!(claim.len() <= 10, "more than was asked for");
            jobs.extend(claim);
        }
        let id: uuid::Uuid = client
            .one_with("SELECT posthaste.delivery_id($1)", &[&jobs[0].job().id.0])
            .await?;
        assert_eq!(jobs[0].delivery_id(), id);
        assert_eq!(count(&client, "running").await, 35);
        jobs.into_iter().for_each(|one| one.settle(Outcome::Done));
        all_done(&client).await;
        worker.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_jobs_count_an_attempt_and_back_off() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let dropped = posthaste::enqueue(&client, &job("dropped").queue("audit")).await?;
    let (mut claims, worker) = audited(&db).await;
    drop(next(&mut claims).await);
    let error = "panicked: dropped without an outcome".to_owned();
    let expected = Some(("retrying".to_owned(), 1, Some(error)));
    eventually(SOON, "it is tried again later", async || {
        Ok(state(&client, dropped.0).await == expected)
    })
    .await?;
    let wait: f64 = client
        .one(
            "SELECT extract(epoch FROM scheduled_at - clock_timestamp())::float8 \
             FROM posthaste.job",
        )
        .await?;
    assert!((40.0..=100.0).contains(&wait), "{wait} s");
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_releases_unclaimed_buffered_jobs() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (worker, mut claims) = worker(&db.pool(2)?).claims(audit());
    let worker = worker
        .queue("default", 2)
        .handler("quick", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await?;
    for (name, queue) in [("quick", "default"), ("kept", "audit"), ("kept", "audit")] {
        posthaste::enqueue(&client, &job(name).queue(queue)).await?;
    }
    eventually(
        SOON,
        "the handler's job is done, the others wait",
        async || Ok(unfinished(&client).await == 2 && count(&client, "running").await == 2),
    )
    .await?;
    worker.stop().await?;
    let after = claims.next().await;
    assert!(after.is_none(), "a stop ends the claims");
    let uncounted: i64 = client
        .one("SELECT count(*) FROM posthaste.job WHERE state = 'available' AND attempt = 0")
        .await?;
    assert_eq!(uncounted, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimed_jobs_fail_like_handled_jobs() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (mut claims, worker) = audited(&db).await;
    let id = posthaste::enqueue(&client, &job("n").queue("audit")).await;
    let id = id.unwrap().0;
    let failed = next(&mut claims).await.pop().unwrap();
    failed.fail(RetryLater::without_attempt(
        Duration::ZERO,
        "nobody was there",
    ));
    let again = next(&mut claims).await.pop().unwrap();
    assert_eq!((again.job().id.0, again.job().attempt), (id, 1));
    again.fail("no luck");
    let expected = Some(("retrying".to_owned(), 1, Some("no luck".to_owned())));
    eventually(SOON, "it is tried again later", async || {
        Ok(state(&client, id).await == expected)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rescheduling_a_batch_writes_one_row_and_counts_no_attempt() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (mut claims, worker) = audited(&db).await;
    let jobs: Vec<_> = (0..5).map(|_| job("n").queue("audit")).collect();
    posthaste::enqueue_many(&client, &jobs).await?;
    for (after, why) in [(Duration::ZERO, "not yet"), (SOON * 100, "much later")] {
        let claim = next(&mut claims).await;
        assert_eq!(claim.len(), 5);
        assert!(claim.iter().all(|one| one.job().attempt == 1));
        for one in claim {
            one.fail(RetryLater::without_attempt(after, why));
        }
    }
    let query = "SELECT count(*) FROM posthaste.job WHERE state = 'scheduled' AND attempt = 0 \
                AND last_error = 'much later'";
    eventually(SOON, "all of them wait", async || {
        Ok(client.one::<i64>(query).await? == 5)
    })
    .await?;
    let rows = |table: &str| {
        let slots: Vec<String> = (0..4)
            .map(|slot| format!("SELECT outcome FROM posthaste.{table}_{slot}"))
            .collect();
        slots.join(" UNION ALL ")
    };
    let whole = client.query(&rows("batch_done"), &[]).await?;
    let whole: Vec<i16> = whole.iter().map(|row| row.get(0)).collect();
    let one_by_one = client.query(&rows("job_done"), &[]).await?;
    assert_eq!((whole, one_by_one.len()), (vec![1, 1], 0));
    worker.stop().await?;
    Ok(())
}

/// Simulates a database that was restored to an older state, in which ids and transaction ids are
/// assigned again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_excludes_newer_jobs_between_its_first_and_last_id() {
    let db = database(PgVersion::any()).await;
    let mut client = db.client().await.unwrap();
    let (mut claims, worker) = audited(&db).await;
    let transaction = client.transaction().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..3 {
        let audit = job("n").queue("audit");
        match number {
            1 => {
                let skipped = "SELECT nextval('posthaste.job_id')";
                ids.push(transaction.one(skipped).await.unwrap());
            }
            _ => ids.push(posthaste::enqueue(&transaction, &audit).await.unwrap().0),
        }
    }
    transaction.commit().await.unwrap();
    let claim = next(&mut claims).await;
    let claimed: Vec<i64> = claim.iter().map(|one| one.job().id.0).collect();
    assert_eq!(claimed, [ids[0], ids[2]], "in one claim");
    // Inserted through the parent table, as the rows of another store are.
    let forge = "INSERT INTO posthaste.store
        SELECT (jsonb_populate_record(r, jsonb_build_object('id', $2::bigint))).*
          FROM posthaste.store r WHERE r.id = $1";
    client.execute(forge, &[&ids[0], &ids[1]]).await.unwrap();
    for one in claim {
        one.fail(RetryLater::without_attempt(SOON * 100, "later"));
    }
    let waiting = async || {
        let query = "SELECT array_agg(id ORDER BY id) FROM posthaste.job WHERE state = 'scheduled'";
        let ids: Option<Vec<i64>> = client.one(query).await?;
        Ok(ids.is_some_and(|ids| ids.len() > 1))
    };
    eventually(SOON, "both wait", waiting).await.unwrap();
    for (id, waits) in [(ids[0], true), (ids[1], false), (ids[2], true)] {
        let state = state(&client, id).await.map(|(state, ..)| state);
        assert_eq!(
            state.as_deref() == Some("scheduled"),
            waits,
            "{id}: {state:?}"
        );
    }
    worker.stop().await.unwrap();
}

/// A consumer that panics on the engine's thread.
struct Broken;

impl Consumer for Broken {
    fn capacity(&self) -> usize {
        1
    }
    fn consume(&self, _claim: Vec<Delivery>) {
        panic!("a bug");
    }
    fn give_back(&self) {}
    fn abort(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_engine_task_stops_the_worker_and_is_named() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let first = job("n").queue("audit");
    let id = posthaste::enqueue(&client, &first).await?;
    let worker = worker(&db.pool(2)?)
        .consumer("audit", Broken)
        .start()
        .await?;
    let ended = tokio::time::timeout(SOON, worker.run_until_signal()).await;
    let message = ended.expect("it ends").expect_err("an error").to_string();
    let expected = "the worker ended unexpectedly: its task \"claim from audit\" panicked: a bug";
    assert_eq!(message, expected);
    let (state, attempt, error) = state(&client, id.0).await.unwrap();
    let error = error.unwrap();
    assert_eq!((&*state, attempt), ("retrying", 1), "{error}");
    assert!(all_signed_off(&client).await, "it signed off");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_settled_per_job_or_failed_together() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let jobs: Vec<_> = (0..3).map(|_| job("n").queue("audit")).collect();
    let ids = posthaste::enqueue_many(&client, &jobs).await?;
    let (mut claims, worker) = audited(&db).await;
    let claim = tokio::time::timeout(SOON, claims.next()).await;
    let mut claim = claim.unwrap().unwrap();
    let reason = "no use".to_owned();
    assert!(claim.settle(ids[1], Outcome::Discard { reason }));
    assert!(!claim.settle(ids[1], Outcome::Done), "it is gone");
    let left: Vec<_> = claim.jobs().map(|job| job.id).collect();
    assert_eq!(left, [ids[0], ids[2]]);
    claim.fail("no luck");
    eventually(SOON, "each has ended", async || {
        let first = state(&client, ids[0].0).await;
        let second = state(&client, ids[1].0).await;
        let failed = Some(("retrying".to_owned(), 1, Some("no luck".to_owned())));
        let discarded = second.is_some_and(|(state, ..)| state == "discarded");
        Ok(first == failed && discarded && state(&client, ids[2].0).await == failed)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsettled_jobs_are_released_at_timeout_and_shutdown() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let slow = posthaste::enqueue(&client, &job("slow").queue("audit")).await;
    let slow = slow.unwrap();
    let queue = QueueConfig {
        timeout: Duration::from_millis(300),
        ..audit()
    };
    let (builder, mut claims) = worker(&db.pool(2).unwrap()).claims(queue);
    let running = builder.start().await.unwrap();
    let held = next(&mut claims).await.pop().unwrap();
    let error = Some("ran longer than 0.3 s".to_owned());
    let expected = Some(("retrying".to_owned(), 1, error));
    let is_back = async || Ok(state(&client, slow.0).await == expected);
    eventually(SOON, "it is taken back", is_back).await.unwrap();
    held.settle(Outcome::Done);
    running.stop().await.unwrap();
    assert_eq!(state(&client, slow.0).await, expected, "its word came late");

    let kept = posthaste::enqueue(&client, &job("kept").queue("audit")).await;
    let kept = kept.unwrap();
    let builder = worker(&db.pool(2).unwrap()).shutdown_grace(Duration::from_millis(50));
    let (builder, mut claims) = builder.claims(audit());
    let running = builder.start().await.unwrap();
    let held = next(&mut claims).await;
    assert_eq!(held[0].job().id, kept);
    running.stop().await.unwrap();
    let expected = Some(("available".to_owned(), 0, None));
    assert_eq!(state(&client, kept.0).await, expected);
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_errors_set_the_retry_time() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let id = posthaste::enqueue(&client, &job("n").queue("audit")).await;
    let id = id.unwrap();
    let (mut claims, worker) = audited(&db).await;
    let claim = tokio::time::timeout(SOON, claims.next()).await;
    let later = RetryLater::without_attempt(SOON * 100, "no quota");
    let error = anyhow::Error::from(later).context("writing");
    claim.unwrap().unwrap().fail(error);
    let expected = Some(("scheduled".into(), 0, Some("writing: no quota".into())));
    let waits = async || Ok(state(&client, id.0).await == expected);
    eventually(SOON, "it waits", waits).await.unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn claims_of_an_unstarted_worker_end() {
    let db = database(PgVersion::any()).await;
    let (builder, mut claims) = worker(&db.pool(1).unwrap()).claims(audit());
    drop(builder);
    let ended = tokio::time::timeout(SOON, claims.next()).await;
    assert!(ended.expect("it ends").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_jobs_of_a_claim_are_reported_and_end_as_cancelled() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let id = posthaste::enqueue(&client, &job("n").queue("audit")).await;
    let id = id.unwrap();
    let (mut claims, worker) = audited(&db).await;
    let held = next(&mut claims).await.pop().unwrap();
    assert!(!held.is_cancelled());
    let cancel = "SELECT posthaste.cancel_many(ARRAY[$1::bigint])";
    client.execute(cancel, &[&id.0]).await?;
    let is_cancelled = async || Ok(held.is_cancelled());
    eventually(SOON, "it says so", is_cancelled).await?;
    held.give_back();
    eventually(SOON, "it ends so", async || {
        let state = state(&client, id.0).await;
        Ok(state.is_some_and(|(state, ..)| state == "cancelled"))
    })
    .await?;
    worker.stop().await?;
    Ok(())
}
