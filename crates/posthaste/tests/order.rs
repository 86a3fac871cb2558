//! Ordering keys: jobs of a key run one at a time, in the order in which they were enqueued,
//! whatever the outcome of each.

mod redrive_and_locks;
pub(crate) mod without_workers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{NewJob, Outcome, QueueConfig, WorkerHandle, enqueue, enqueue_many};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use without_workers::Store;

use crate::support::{
    SOON, all_done, connected, count, database, quick, quick_queue, unfinished, worker,
};

/// What handlers observed: for each key the numbers of its jobs in the order in which they ended,
/// and that two jobs of a key never ran at once.
#[derive(Clone, Default)]
struct Seen {
    running: Arc<Mutex<HashMap<String, i64>>>,
    ended: Arc<Mutex<Vec<(String, i64)>>>,
}

impl Seen {
    fn begins(&self, key: &str, n: i64) {
        let other = self.running.lock().unwrap().insert(key.to_owned(), n);
        assert_eq!(other, None, "{key}: {n} began while another one ran");
    }

    fn ends(&self, key: &str, n: i64, for_good: bool) {
        self.running.lock().unwrap().remove(key);
        if for_good {
            self.ended.lock().unwrap().push((key.to_owned(), n));
        }
    }

    fn of(&self, key: &str) -> Vec<i64> {
        let ended = self.ended.lock().unwrap();
        ended
            .iter()
            .filter(|(of, _)| of == key)
            .map(|(_, n)| *n)
            .collect()
    }
}

#[derive(serde::Deserialize)]
struct Number {
    n: i64,
}

/// Starts slow workers of two queues; every seventh job of a key fails at first.
async fn workers(db: &TestDb, seen: &Seen) -> Vec<WorkerHandle> {
    let mut workers = Vec::new();
    for _ in 0..2 {
        let seen = seen.clone();
        let started = worker(&db.pool(4).unwrap())
            .queue_config(quick_queue())
            .queue_config(QueueConfig {
                name: "mail".into(),
                ..quick_queue()
            })
            .handler("*", move |_, job| {
                let seen = seen.clone();
                async move {
                    let key = job.ordering_key.clone().expect("a key");
                    let Number { n } = job.kwargs()?;
                    seen.begins(&key, n);
                    tokio::time::sleep(Duration::from_millis(n.unsigned_abs() % 4)).await;
                    let fails = n % 7 == 3 && job.attempt == 1;
                    seen.ends(&key, n, !fails);
                    if fails {
                        return Err("not yet".into());
                    }
                    Ok(Outcome::Done)
                }
            })
            .start()
            .await
            .unwrap();
        workers.push(started);
    }
    workers
}

fn job(key: &str, n: i64) -> NewJob {
    NewJob::new("x", &serde_json::json!({ "n": n }))
        .unwrap()
        .ordering_key(key)
}

#[tokio::test]
async fn ordered_jobs_run_one_at_a_time_per_key_in_enqueue_order() -> TestResult {
    for version in PgVersion::tried() {
        let (db, client) = connected(version).await?;
        let seen = Seen::default();
        let workers = workers(&db, &seen).await;
        // One by one and in bulk, in two queues and many priorities, by function and by view, with
        // a rolled-back job in between.
        for n in (0..20).step_by(4) {
            for key in ["a", "b", "c"] {
                enqueue(&client, &job(key, n).priority((n % 3) as i32)).await?;
                enqueue(&client, &job(key, n + 1).queue("mail")).await?;
                client
                    .execute(
                        "INSERT INTO posthaste.job (name, kwargs, ordering_key, priority) \
                         VALUES ('x', jsonb_build_object('n', $1::bigint), $2, 5)",
                        &[&(n + 2), &key],
                    )
                    .await?;
                client
                    .run(&format!(
                        "BEGIN; SELECT posthaste.enqueue('x', '{{\"n\": -1}}', ordering_key => \
                         '{key}'); ROLLBACK"
                    ))
                    .await?;
                enqueue_many(&client, &[job(key, n + 3)]).await?;
            }
        }
        let bulk: Vec<NewJob> = (0..30).map(|n| job("bulk", n)).collect();
        enqueue_many(&client, &bulk).await?;
        all_done(&client).await;
        for key in ["a", "b", "c"] {
            assert_eq!(seen.of(key), (0..20).collect::<Vec<_>>(), "{key}");
        }
        assert_eq!(seen.of("bulk"), (0..30).collect::<Vec<_>>());
        for worker in workers {
            worker.stop().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn ordering_keys_stay_taken_across_retries() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let store = Store::new(db.client().await?).await;
        let first = store.enqueue(1).await;
        let second = store.enqueue(2).await;
        let third = store.enqueue(3).await;
        assert_eq!(count(&store.client, "blocked").await, 3);
        store.turns().await;
        assert_eq!(count(&store.client, "blocked").await, 2);
        // It was given back or retried, and keeps its turn.
        for kind in [8, 1] {
            let job = store.claim().await.expect("the first");
            assert_eq!(job.id, first);
            store.nobody().await;
            store.settle(&job, kind).await;
        }
        let job = store.claim().await.expect("the first");
        store.settle(&job, 4).await;
        store.nobody().await;
        store
            .client
            .execute(
                "SELECT posthaste.confirm(posthaste.delivery_id($1))",
                &[&first],
            )
            .await?;
        store.turns().await;
        let job = store.claim().await.expect("the second");
        assert_eq!(job.id, second);
        store.settle(&job, 2).await;
        assert_eq!(store.next().await, third);
        // The dead one goes behind all others of its key.
        let fourth = store.enqueue(4).await;
        store.turns().await;
        store.client.run("SELECT posthaste.redrive()").await?;
        store.nobody().await;
        store
            .client
            .execute("SELECT posthaste.cancel($1)", &[&third])
            .await?;
        store.nobody().await;
        let states = store
            .client
            .query("SELECT id, state FROM posthaste.job ORDER BY id", &[])
            .await?;
        let states: Vec<(i64, String)> = states.iter().map(|r| (r.get(0), r.get(1))).collect();
        let expected = [
            (second, "blocked".to_owned()),
            (third, "running".to_owned()),
            (fourth, "blocked".to_owned()),
        ];
        assert_eq!(states, expected);
    }
    Ok(())
}

#[tokio::test]
async fn cancelled_and_expired_jobs_are_skipped_in_order() -> TestResult {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let store = Store::new(db.client().await?).await;
        let first = store.enqueue(1).await;
        let cancelled = store.enqueue(2).await;
        let expired = store
            .number(
                "SELECT posthaste.enqueue('x', ordering_key => 'k', expires_at => now() + interval \
                 '200 ms')",
            )
            .await;
        let last = store.enqueue(4).await;
        store.turns().await;
        let job = store.claim().await.expect("the first");
        assert_eq!(job.id, first);
        store
            .client
            .execute("SELECT posthaste.cancel($1)", &[&cancelled])
            .await?;
        eventually(SOON, "the blocked one expires", async || {
            let sql = "SELECT sum(posthaste.expire(s, 10))::bigint FROM generate_series(0, 7) s";
            store.number(sql).await;
            Ok(count(&store.client, "expired").await == 1
                && store.number("SELECT count(*) FROM posthaste.dead").await == 2)
        })
        .await?;
        store.nobody().await;
        store.settle(&job, 0).await;
        assert_eq!(store.next().await, last);
        assert!(expired < last);
    }
    Ok(())
}

#[tokio::test]
async fn scheduled_ordered_jobs_take_their_turn_when_due() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.client().await.unwrap()).await;
    let due = store
        .number(
            "SELECT posthaste.enqueue('x', ordering_key => 'k', scheduled_at => now() + interval \
             '300 ms')",
        )
        .await;
    assert_eq!(count(&store.client, "scheduled").await, 1);
    let now = store.enqueue(1).await;
    store.turns().await;
    let job = store.claim().await.expect("who is due");
    assert_eq!(job.id, now);
    store.settle(&job, 0).await;
    eventually(SOON, "it is promoted", async || {
        store
            .client
            .run("SELECT posthaste.publish_horizon()")
            .await?;
        let promoted = store.number("SELECT posthaste.promote(10, false)").await;
        Ok(promoted == 1)
    })
    .await
    .unwrap();
    assert_eq!(store.next().await, due);
}

#[tokio::test]
async fn ordering_survives_truncated_slots() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let store = Store::new(db.client().await.unwrap()).await;
        let ids: Vec<i64> = {
            let jobs: Vec<NewJob> = (0..60).map(|n| job("k", n)).collect();
            let ids = enqueue_many(&store.client, &jobs).await.unwrap();
            ids.into_iter().map(|id| id.0).collect()
        };
        let mut truncated = 0;
        for id in ids {
            store.turns().await;
            let job = store.claim().await.expect("the next");
            assert_eq!(job.id, id);
            // While it runs, its scheduled segment is left and emptied: 10 spent rows are enough.
            let state = store
                .client
                .one::<String>("SELECT o_state FROM posthaste.tidy_scheduled(10)")
                .await
                .unwrap();
            truncated += usize::from(state == "truncated");
            store.number("SELECT posthaste.promote(7, true)").await;
            store.nobody().await;
            store.settle(&job, 0).await;
        }
        assert!(truncated >= 2, "{truncated}");
        store.nobody().await;
        assert_eq!(unfinished(&store.client).await, 0);
        // Its key is free again.
        let later = store.enqueue(100).await;
        assert_eq!(store.next().await, later);
    }
}

#[tokio::test]
async fn late_commits_take_their_turn_at_commit() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.client().await.unwrap()).await;
    let mut late = db.client().await.unwrap();
    let tx = late.transaction().await.unwrap();
    let late_id = enqueue(&tx, &job("k", 1)).await.unwrap().0;
    let early = store.enqueue(2).await;
    let then = store.enqueue(3).await;
    store.turns().await;
    let job = store.claim().await.expect("who committed");
    assert_eq!(job.id, early);
    tx.commit().await.unwrap();
    store.nobody().await;
    store.settle(&job, 0).await;
    store.turns().await;
    let job = store.claim().await.expect("who came before");
    assert_eq!(job.id, then);
    store.settle(&job, 0).await;
    assert_eq!(store.next().await, late_id);
}

#[tokio::test]
async fn jobs_of_a_dead_worker_keep_their_turn() {
    let db = database(PgVersion::any()).await;
    let store = Store::new(db.client().await.unwrap()).await;
    let first = store.enqueue(1).await;
    let second = store.enqueue(2).await;
    assert_eq!(store.next().await, first);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    // The worker that is played by the test sends no heartbeat: it is declared dead, and its job
    // runs again, alone.
    let worker = worker(&db.pool(4).unwrap())
        .config(quick())
        .queue_config(quick_queue())
        .handler("x", move |_, job| {
            noted.lock().unwrap().push(job.id.0);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .unwrap();
    all_done(&store.client).await;
    assert_eq!(*seen.lock().unwrap(), [first, second]);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn rejects_empty_or_oversized_ordering_keys() -> TestResult {
    let (_db, client) = connected(PgVersion::any()).await?;
    for sql in [
        "SELECT posthaste.enqueue('x', ordering_key => '')",
        "SELECT posthaste.enqueue('x', ordering_key => repeat('k', 1025))",
        "INSERT INTO posthaste.job (name, ordering_key) VALUES ('x', '')",
    ] {
        let error = client.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().expect("an answer").message().to_owned();
        assert!(error.contains("ordering_key"), "{error}");
    }
    let refused = NewJob::new("x", &serde_json::json!({}))?.ordering_key("");
    let error = enqueue(&client, &refused).await.unwrap_err().to_string();
    assert!(error.contains("ordering_key"), "{error}");
    Ok(())
}

/// The leader may be late: it died, or a crash of the server lost its progress.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_stay_unsealed_until_their_ordered_jobs_have_a_turn() {
    for version in PgVersion::tried() {
        let database = database(version).await;
        let store = Store::new(database.client().await.unwrap()).await;
        let id = store.enqueue(1).await;
        let sealed =
            "SELECT (s.o_sealed)::integer::bigint FROM posthaste.rotate(1), posthaste.seal() s";
        assert_eq!(store.number(sealed).await, 0, "{version:?}");
        assert_eq!(store.next().await, id);
        assert_eq!(
            store
                .number("SELECT posthaste.advance_ordering(1000)")
                .await,
            0
        );
        let sealed = "SELECT (s.o_sealed)::integer::bigint FROM posthaste.seal() s";
        assert_eq!(store.number(sealed).await, 1, "{version:?}");
    }
}
