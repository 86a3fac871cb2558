//! Consumers from outside: whole claims instead of handlers, and the same care for each job.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{Backoff, Consumer, Delivery, Outcome, TryAgain, WorkerHandle};
use posthaste_testkit::{PgVersion, TestDb, eventually};

use crate::lifecycle::{job, state};
use crate::support::{SOON, all_done, count, database, unfinished, worker};

/// Keeps what it is given; the test decides what becomes of it.
#[derive(Default)]
struct Drawer {
    kept: Mutex<Vec<Delivery>>,
    given_back: Mutex<usize>,
}

impl Drawer {
    /// What was claimed since the last time, at least one job.
    async fn opened(&self) -> Vec<Delivery> {
        let filled = async || Ok(!self.kept.lock().unwrap().is_empty());
        eventually(SOON, "something is claimed", filled)
            .await
            .unwrap();
        std::mem::take(&mut self.kept.lock().unwrap())
    }
}

impl Consumer for Drawer {
    fn capacity(&self) -> usize {
        10_usize.saturating_sub(self.kept.lock().unwrap().len())
    }
    fn consume(&self, claim: Vec<Delivery>) {
        self.kept.lock().unwrap().extend(claim);
    }
    fn give_back(&self) {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        *self.given_back.lock().unwrap() += kept.len();
        kept.into_iter().for_each(|one| one.ticket.give_back());
    }
    fn abort(&self) {}
    fn backoff(&self) -> Backoff {
        Backoff {
            base: Duration::from_secs(100),
            cap: Duration::from_secs(100),
        }
    }
}

/// A drawer for the jobs of the queue `audit`.
async fn audited(db: &TestDb) -> (Arc<Drawer>, WorkerHandle) {
    let drawer = Arc::new(Drawer::default());
    let worker = worker(&db.pool(2).unwrap()).consumer("audit", Arc::clone(&drawer));
    (drawer, worker.start().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_from_outside_takes_whole_claims_and_finishes_them() {
    for version in [PgVersion::V15, PgVersion::V18] {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let enqueue = "INSERT INTO posthaste.job (name, queue) SELECT 'n', 'audit' FROM generate_series(1, 35)";
        client.batch_execute(enqueue).await.unwrap();
        let drawer = Arc::new(Drawer::default());
        let worker = worker(&db.pool(2).unwrap())
            .consumer("audit", Arc::clone(&drawer))
            .start()
            .await
            .unwrap();
        let mut jobs = Vec::new();
        while jobs.len() < 35 {
            let claim = drawer.opened().await;
            assert!(claim.len() <= 10, "more than it has room for");
            jobs.extend(claim);
        }
        let id: uuid::Uuid = client
            .query_one("SELECT posthaste.delivery_id($1)", &[&jobs[0].job.id.0])
            .await
            .unwrap()
            .get(0);
        assert_eq!(jobs[0].ticket.delivery_id(), id);
        assert_eq!(count(&client, "running").await, 35);
        jobs.into_iter()
            .for_each(|one| one.ticket.finish(Outcome::Done));
        all_done(&client).await;
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_that_a_consumer_drops_burns_an_attempt_and_its_back_off_decides() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let dropped = posthaste::enqueue(&client, &job("dropped").queue("audit"))
        .await
        .unwrap();
    let drawer = Arc::new(Drawer::default());
    let worker = worker(&db.pool(2).unwrap())
        .consumer("audit", Arc::clone(&drawer))
        .start()
        .await
        .unwrap();
    drop(drawer.opened().await);
    let error = "panicked: dropped without an outcome".to_owned();
    let expected = Some(("retrying".to_owned(), 1, Some(error)));
    eventually(SOON, "it is tried again later", async || {
        Ok(state(&client, dropped.0).await == expected)
    })
    .await
    .unwrap();
    let wait: f64 = client
        .query_one(
            "SELECT extract(epoch FROM scheduled_at - clock_timestamp())::float8 FROM posthaste.job",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!((40.0..=100.0).contains(&wait), "{wait} s");
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_and_handlers_share_a_worker_and_a_stop_asks_the_consumer_to_give_back() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let drawer = Arc::new(Drawer::default());
    let worker = worker(&db.pool(2).unwrap())
        .consumer("audit", Arc::clone(&drawer))
        .queue("default", 2)
        .handler("quick", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .unwrap();
    for (name, queue) in [("quick", "default"), ("kept", "audit"), ("kept", "audit")] {
        posthaste::enqueue(&client, &job(name).queue(queue))
            .await
            .unwrap();
    }
    eventually(
        SOON,
        "the handler's job is done, the others wait",
        async || Ok(unfinished(&client).await == 2 && count(&client, "running").await == 2),
    )
    .await
    .unwrap();
    worker.stop().await.unwrap();
    assert_eq!(*drawer.given_back.lock().unwrap(), 2);
    let unburnt: i64 = client
        .query_one(
            "SELECT count(*) FROM posthaste.job WHERE state = 'claimable' AND attempt = 0",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(unburnt, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_fails_a_job_as_handlers_do() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let (drawer, worker) = audited(&db).await;
    let id = posthaste::enqueue(&client, &job("n").queue("audit")).await;
    let id = id.unwrap().0;
    let failed = drawer.opened().await.pop().unwrap();
    failed
        .ticket
        .fail(TryAgain::unburnt(Duration::ZERO, "nobody was there"));
    let again = drawer.opened().await.pop().unwrap();
    assert_eq!((again.job.id.0, again.job.attempt), (id, 0));
    again.ticket.fail("no luck");
    let expected = Some(("retrying".to_owned(), 1, Some("no luck".to_owned())));
    eventually(SOON, "it is tried again later", async || {
        Ok(state(&client, id).await == expected)
    })
    .await
    .unwrap();
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_put_off_for_one_reason_is_closed_by_one_row_and_comes_again_unburnt() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let (drawer, worker) = audited(&db).await;
    let jobs: Vec<_> = (0..5).map(|_| job("n").queue("audit")).collect();
    posthaste::enqueue_many(&client, &jobs).await.unwrap();
    for (after, why) in [(Duration::ZERO, "not yet"), (SOON * 100, "much later")] {
        let claim = drawer.opened().await;
        assert_eq!(claim.len(), 5);
        assert!(claim.iter().all(|one| one.job.attempt == 0));
        for one in claim {
            one.ticket.fail(TryAgain::unburnt(after, why));
        }
    }
    let told = "SELECT count(*) FROM posthaste.job WHERE state = 'scheduled' AND attempt = 0 AND last_error = 'much later'";
    eventually(SOON, "all of them wait", async || {
        Ok(client.query_one(told, &[]).await?.get::<_, i64>(0) == 5)
    })
    .await
    .unwrap();
    let rows = |table: &str| {
        let slots: Vec<String> = (0..4)
            .map(|slot| format!("SELECT outcome FROM posthaste.{table}_{slot}"))
            .collect();
        slots.join(" UNION ALL ")
    };
    let whole = client.query(&rows("whole"), &[]).await.unwrap();
    let whole: Vec<i16> = whole.iter().map(|row| row.get(0)).collect();
    let one_by_one = client.query(&rows("ack"), &[]).await.unwrap();
    assert_eq!((whole, one_by_one.len()), (vec![1, 1], 0));
    worker.stop().await.unwrap();
}

/// As in a database that was restored to an older moment, where ids and transactions are handed out once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_younger_job_within_the_edges_of_a_batch_does_not_go_on_with_it() {
    let db = database(PgVersion::V15).await;
    let mut client = db.client().await.unwrap();
    let (drawer, worker) = audited(&db).await;
    let transaction = client.transaction().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..3 {
        let audit = job("n").queue("audit");
        match number {
            1 => {
                let skipped = "SELECT nextval('posthaste.job_id')";
                ids.push(transaction.query_one(skipped, &[]).await.unwrap().get(0));
            }
            _ => ids.push(posthaste::enqueue(&transaction, &audit).await.unwrap().0),
        }
    }
    transaction.commit().await.unwrap();
    let claim = drawer.opened().await;
    let claimed: Vec<i64> = claim.iter().map(|one| one.job.id.0).collect();
    assert_eq!(claimed, [ids[0], ids[2]], "in one claim");
    for slot in 0..4 {
        let forge = format!(
            "INSERT INTO posthaste.ready_{slot} SELECT (jsonb_populate_record(r, jsonb_build_object('id', $2::bigint))).*
             FROM posthaste.ready_{slot} r WHERE r.id = $1"
        );
        client.execute(&forge, &[&ids[0], &ids[1]]).await.unwrap();
    }
    for one in claim {
        one.ticket.fail(TryAgain::unburnt(SOON * 100, "later"));
    }
    let waiting = async || {
        let told = "SELECT array_agg(id ORDER BY id) FROM posthaste.job WHERE state = 'scheduled'";
        let ids: Option<Vec<i64>> = client.query_one(told, &[]).await?.get(0);
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

/// Panics on the engine's thread.
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
async fn a_worker_whose_consumer_breaks_a_task_of_the_engine_ends_in_good_order_and_says_which() {
    let db = database(PgVersion::V15).await;
    let client = db.client().await.unwrap();
    let first = job("n").queue("audit");
    let id = posthaste::enqueue(&client, &first).await.unwrap();
    let worker = worker(&db.pool(2).unwrap())
        .consumer("audit", Broken)
        .start()
        .await
        .unwrap();
    let ended = tokio::time::timeout(SOON, worker.run_until_signal()).await;
    let said = ended.expect("it ends").expect_err("an error").to_string();
    let expected = "the worker ended unexpectedly: its task \"claim from audit\" panicked: a bug";
    assert_eq!(said, expected);
    let (state, attempt, error) = state(&client, id.0).await.unwrap();
    let error = error.unwrap();
    assert_eq!((&*state, attempt), ("retrying", 1), "{error}");
    let gone: bool = client
        .query_one(
            "SELECT bool_and(stopped_at IS NOT NULL) FROM posthaste.worker",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(gone, "it signed off");
}
