//! Workers that freeze while an answer is in flight, such as a stopped process, a frozen machine or
//! a stalled link: they hold no lock, and no client waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste::consumer::{Consumer, Delivery};
use posthaste::{Outcome, WorkerHandle};
use posthaste_testkit::{
    PgServer, PgVersion, Proxy, RequestMatcher, Sql as _, TestDb, connect, eventually,
};
use tokio_postgres::Client;

use crate::support::{SOON, all_done, hand, migrated, number, worker};

/// More than the sockets buffer for a client that reads nothing.
const BIG: &str = "
    INSERT INTO posthaste.job (name, kwargs)
    SELECT 'big', jsonb_build_object('pad', repeat('x', 40000)) FROM generate_series(1, 380)";
const JOBS: usize = 380;

/// Takes every job and completes it at once.
#[derive(Default)]
struct Greedy {
    is_ordered: bool,
    done: AtomicUsize,
}

impl Consumer for Greedy {
    fn capacity(&self) -> usize {
        20_000
    }
    fn consume(&self, claim: Vec<Delivery>) {
        self.done.fetch_add(claim.len(), Ordering::SeqCst);
        let claim = claim.into_iter();
        claim.for_each(|one| one.ticket.settle(Outcome::Done));
    }
    fn give_back(&self) {}
    fn abort(&self) {}
    fn is_ordered(&self) -> bool {
        self.is_ordered
    }
    fn quarantine_batch(&self) -> usize {
        1_000
    }
}

struct Scene {
    db: TestDb,
    client: Client,
    proxy: Proxy,
    consumer: Arc<Greedy>,
}

impl Scene {
    async fn new(is_ordered: bool) -> Self {
        let server = PgServer::shared(PgVersion::any()).expect("a server");
        let db = migrated(server).await;
        let client = db.client().await.unwrap();
        let proxy = Proxy::start(server.address()).await.expect("a proxy");
        let consumer = Arc::new(Greedy {
            is_ordered,
            done: AtomicUsize::default(),
        });
        Self {
            db,
            client,
            proxy,
            consumer,
        }
    }

    async fn start(&self) -> WorkerHandle {
        let url = self.proxy.url(self.db.name());
        let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), tokio_postgres::NoTls);
        let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
        worker(&pool)
            .consumer("default", Arc::clone(&self.consumer))
            .start()
            .await
            .unwrap()
    }

    /// Claims new jobs as another worker that dies; its jobs are rescued.
    async fn claim_beside(&self) {
        let client = &self.client;
        client.run("SET lock_timeout = '5s'").await.unwrap();
        let small = "INSERT INTO posthaste.job (name) SELECT 'small' FROM generate_series(1, 20)";
        client.run(small).await.unwrap();
        let hand = hand(client).await;
        let claim = "SELECT count(*) FROM posthaste.claim('default', '{0}', $1, \
                     gen_random_uuid(), 5000, 1000000)";
        let claimed = client.query_one(claim, &[&hand]).await;
        let claimed: i64 = claimed.expect("the lane is free").get(0);
        assert_eq!(claimed, 20);
    }

    /// Checks that the worker has run this many jobs, and none are left.
    async fn ends(&self, worker: WorkerHandle, runs: usize) {
        all_done(&self.client).await;
        assert_eq!(self.consumer.done.load(Ordering::SeqCst), runs);
        worker.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_before_reading_its_claim_locks_no_lane() {
    for statement in ["FROM posthaste.claim(", "FROM posthaste.claimed_jobs("] {
        let scene = Scene::new(false).await;
        scene.client.run(BIG).await.unwrap();
        let answer = RequestMatcher::statement(statement);
        let stalled = scene.proxy.stall_answer_to(answer);
        let worker = scene.start().await;
        stalled.wait(SOON).await.unwrap();
        scene.claim_beside().await;
        scene.proxy.restore().await.unwrap();
        scene.ends(worker, JOBS + 20).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_worker_frozen_while_recovering_a_claim_locks_no_lane() {
    let scene = Scene::new(true).await;
    scene.client.run(BIG).await.unwrap();
    let lost = RequestMatcher::statement("FROM posthaste.claim(");
    let lost = scene.proxy.drop_answer_to(lost);
    let worker = scene.start().await;
    lost.wait(SOON).await.unwrap();
    let search = RequestMatcher::statement("FROM posthaste.claimed_jobs(");
    scene
        .proxy
        .stall_answer_to(search)
        .wait(SOON)
        .await
        .unwrap();
    scene.claim_beside().await;
    scene.proxy.restore().await.unwrap();
    scene.ends(worker, JOBS + 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_frozen_in_a_quarantine_claim_leaves_no_open_claim() {
    let scene = Scene::new(false).await;
    let big = BIG.replace("(name, kwargs)", "(name, max_attempts, kwargs)");
    let big = big.replace("'big',", "'big', NULL,");
    for step in [
        &*big,
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT FROM (SELECT max(id) AS id FROM posthaste.worker) w,
           LATERAL posthaste.claim('default', '{0}', w.id, gen_random_uuid(), 1000, 100000000)",
        "SELECT posthaste.rescue(max(id), 0) FROM posthaste.worker",
    ] {
        scene.client.run(step).await.unwrap();
    }
    let read = RequestMatcher::statement("FROM posthaste.claimed_jobs(");
    let stalled = scene.proxy.stall_answer_to(read);
    let worker = scene.start().await;
    stalled.wait(SOON).await.unwrap();
    let running = "SELECT count(*) FROM posthaste.in_flight WHERE state = 'running'";
    assert_eq!(number(&scene.client, running).await, 380);
    // Cancel and rescue skip locked rows: none is locked.
    let free = "SELECT count(*) FROM (SELECT FROM posthaste.in_flight FOR UPDATE SKIP LOCKED) h";
    assert_eq!(number(&scene.client, free).await, 380);
    scene.proxy.restore().await.unwrap();
    scene.ends(worker, JOBS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_claims_are_released_or_recovered_without_an_attempt() {
    for is_ordered in [false, true] {
        let scene = Scene::new(is_ordered).await;
        scene.client.run(BIG).await.unwrap();
        let read = RequestMatcher::statement("FROM posthaste.claimed_jobs(");
        let lost = scene.proxy.drop_answer_to(read);
        let worker = scene.start().await;
        lost.wait(SOON).await.unwrap();
        scene.ends(worker, JOBS).await;
        let failed = "SELECT count(*) FROM posthaste.attempt";
        assert_eq!(number(&scene.client, failed).await, 0);
    }
}

/// The answer of a claim contains the job of one segment and names the batch of another. A leader
/// moves the first job to posthaste.in_flight, where the second statement of the claim reads it
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_moves_between_the_statements_of_its_claim_runs_once() {
    let scene = Scene::new(false).await;
    let small = "INSERT INTO posthaste.job (name) VALUES ('small')";
    for step in [small, "SELECT posthaste.rotate(0)", BIG] {
        scene.client.run(step).await.unwrap();
    }
    let claim = RequestMatcher::statement("FROM posthaste.claim(");
    let stalled = scene.proxy.stall_answer_to(claim);
    let worker = scene.start().await;
    stalled.wait(SOON).await.unwrap();
    let moves = "SELECT posthaste.move_running((s.ready_low % 4)::integer, 0, 1000)
                   FROM posthaste.segments() s";
    eventually(SOON, "the leader moves the first job", async || {
        scene.client.run(moves).await?;
        let moved = "SELECT count(*) FROM posthaste.in_flight WHERE name = 'small'";
        Ok(number(&scene.client, moved).await == 1)
    })
    .await
    .unwrap();
    scene.proxy.restore().await.unwrap();
    scene.ends(worker, JOBS + 1).await;
}

/// Checks that no other transaction writes into a table of this database.
fn is_unwritten(table: &str) -> String {
    format!(
        "SELECT NOT EXISTS (SELECT FROM pg_locks
            WHERE relation = '{table}'::regclass AND mode = 'RowExclusiveLock'
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    )
}

/// These functions answer for each job, in a transaction that has locked lanes, the promoter or
/// rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_clients_lose_the_locks_of_cancel_and_retry() {
    let claim = "INSERT INTO posthaste.worker (name) VALUES ('w');
        INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 1001);
        SELECT count(*) FROM posthaste.claim('default', '{0}',
          (SELECT max(id) FROM posthaste.worker),
          '00000000-0000-0000-0000-000000000001', 5000, 16000000)";
    let two = "SELECT posthaste.enqueue('n', scheduled_at => now() + at)
            FROM unnest('{0, 1 hour}'::interval[]) at";
    let cancelled = format!("{two}; SELECT count(*) FROM posthaste.cancel_many('{{1}}')");
    let [dead, done] = ["posthaste.dead", "posthaste.job_done_0"].map(is_unwritten);
    let cases: [(&str, &str, &str); 4] = [
        (
            two,
            "SELECT count(*) FROM posthaste.cancel_many('{1}')",
            "SELECT pg_try_advisory_xact_lock(1885893475, posthaste.lane_key('default', 0))",
        ),
        (
            two,
            "SELECT count(*) FROM posthaste.retry('{2}')",
            "SELECT pg_try_advisory_xact_lock(1885893476, 2)",
        ),
        (
            &cancelled,
            "SELECT count(*) FROM posthaste.redrive('{1}')",
            &dead,
        ),
        (
            claim,
            "SELECT posthaste.settle(0::smallint, max(c.batch), c.token,
               ARRAY(SELECT generate_series(1, 1001)::bigint), array_fill(0::smallint, '{1001}'),
               NULL, NULL, NULL, NULL, NULL) FROM posthaste.claim_0 c GROUP BY c.token",
            &done,
        ),
    ];
    for (jobs, call, lock) in cases {
        let scene = Scene::new(false).await;
        // Each in a separate transaction: a claim sees only committed rows.
        for step in jobs.split(';') {
            scene.client.run(step).await.unwrap();
        }
        let frozen = connect(&scene.proxy.url(scene.db.name())).await.unwrap();
        let answer = RequestMatcher::statement("repeat('x', 1000)");
        let stalled = scene.proxy.stall_answer_to(answer);
        let (sent, long) = tokio::sync::oneshot::channel();
        let asked = tokio::spawn(async move {
            let begin = format!("BEGIN; {call}");
            frozen.run(&begin).await.unwrap();
            sent.send(()).unwrap();
            let long = "SELECT repeat('x', 1000) FROM generate_series(1, 20000); COMMIT";
            frozen.batch_execute(long).await
        });
        long.await.unwrap();
        stalled.wait(SOON).await.unwrap();
        let is_free = async || -> anyhow::Result<bool> { scene.client.one(lock).await };
        assert!(!is_free().await.unwrap(), "{call} locks it");
        eventually(SOON, "it is free", is_free).await.unwrap();
        asked.abort();
    }
}

/// An answer may be as large as the data that a server can send to a client that reads nothing.
#[tokio::test]
async fn claim_answers_respect_their_byte_limit() {
    let scene = Scene::new(false).await;
    let client = &scene.client;
    let worker = hand(client).await;
    // Lanes, jobs of each, bytes of the arguments, letters of the name; and the jobs in the answer.
    for (lanes, jobs, bytes, letters, answered) in [
        (1, 16, 1_000, 1, 16),
        (1, 30, 1_000, 1, 0),
        (1, 100, 1, 60, 100),
        (1, 120, 1, 60, 0),
        (6, 8, 1_000, 1, 16),
        (30, 1, 1_000, 1, 5),
    ] {
        let enqueue = "INSERT INTO posthaste.job (name, priority, kwargs)
            SELECT repeat('n', $4::integer), lane, jsonb_build_object('k', repeat('x', $3::integer))
              FROM generate_series(1, $1::integer) lane, generate_series(1, $2::integer)";
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&lanes, &jobs, &bytes, &letters];
        client.execute(enqueue, &parameters).await.unwrap();
        let claim = "SELECT c.id, octet_length(concat(c.name, c.kwargs)) + 128
              FROM posthaste.claim('default', ARRAY(SELECT generate_series(1, $2::integer)), $1,
                gen_random_uuid(), 5000, 100000000, 20480) c";
        let rows = client.query(claim, &[&worker, &lanes]).await.unwrap();
        let sent = rows.iter().filter_map(|row| {
            let id: Option<i64> = row.get(0);
            id.map(|_| row.get::<_, i32>(1))
        });
        let sent: Vec<i32> = sent.collect();
        assert_eq!(sent.len(), answered, "{lanes} lanes of {jobs}");
        assert!(
            sent.iter().sum::<i32>() <= 20_480,
            "{lanes} lanes of {jobs}"
        );
    }
}

/// Reads a claim as a worker does that froze after it.
#[tokio::test]
async fn a_claim_can_be_read_while_it_owns_its_jobs() {
    let scene = Scene::new(false).await;
    let client = &scene.client;
    let worker = hand(client).await;
    let jobs = "INSERT INTO posthaste.job (name) SELECT 'n' FROM generate_series(1, 5)";
    client.run(jobs).await.unwrap();
    let token = uuid::Uuid::new_v4();
    let claim = "SELECT slot, batch FROM posthaste.claim('default', '{0}', $1, $2, 4, 1000, 0)";
    let rows = client.query(claim, &[&worker, &token]).await.unwrap();
    assert_eq!(rows.len(), 1, "one row stands for the batch");
    let (slot, batch): (i16, i64) = (rows[0].get(0), rows[0].get(1));
    let read = async |token: uuid::Uuid| -> Vec<i64> {
        let sql = "SELECT id FROM posthaste.claimed_jobs($1, $2, ARRAY[$3::smallint], \
                   ARRAY[$4::bigint], NULL)";
        let rows = client.query(sql, &[&worker, &token, &slot, &batch]).await;
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(read(token).await, [1, 2, 3, 4]);
    assert_eq!(
        read(uuid::Uuid::new_v4()).await,
        [0_i64; 0],
        "another token"
    );
    let settle = "SELECT posthaste.settle($1, $2, $3, '{2}', '{0}', NULL, NULL, NULL, NULL, NULL)";
    client
        .query(settle, &[&slot, &batch, &token])
        .await
        .unwrap();
    assert_eq!(read(token).await, [1, 3, 4], "one was closed");
    let moved = "SELECT posthaste.move_running($1::smallint::integer, 0, 1)";
    client.query(moved, &[&slot]).await.unwrap();
    let in_flight = "SELECT count(*) FROM posthaste.in_flight";
    assert_eq!(number(client, in_flight).await, 1);
    assert_eq!(read(token).await, [1, 3, 4], "one moved to in_flight");
    let rescue = "SELECT posthaste.rescue($1, 0)";
    client.query(rescue, &[&worker]).await.unwrap();
    assert_eq!(
        read(token).await,
        [0_i64; 0],
        "its worker was declared dead"
    );
    let again = "UPDATE posthaste.worker SET stopped_at = NULL";
    client.run(again).await.unwrap();
    assert_eq!(
        read(token).await,
        [0_i64; 0],
        "and its jobs are quarantined"
    );
}
