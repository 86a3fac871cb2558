//! Poison: a job that harms its worker delays only itself, and costs only its own attempts.

mod unreadable;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use posthaste::{Backoff, JobArgs, Outcome, QueueConfig};
use posthaste_testkit::{Child, PgVersion, Sql as _, TestDb, TestResult, connect, eventually};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use crate::support::{SOON, connected, count, database, unfinished, worker};

const QUICK: Backoff = Backoff {
    base: Duration::from_millis(20),
    cap: Duration::from_millis(100),
};
/// Innocent jobs around the poison.
const INNOCENT: i64 = 199;
/// Innocent jobs that wait whenever a process starts while a poison is due.
const WAITING: i32 = 300;
/// Names this binary as a worker that a test starts and kills (see `a_worker_process`).
const WORKER_ENV: &str = "POSTHASTE_TEST_WORKER";

/// Enqueues one poison in the middle of innocent jobs.
async fn enqueue_around(client: &Client, poison: &str) {
    client
        .execute(
            "INSERT INTO posthaste.job (name, max_attempts, kwargs)
             SELECT CASE WHEN g = 100 THEN $1 ELSE 'good' END, 3, jsonb_build_object('n', g)
               FROM generate_series(1, $2::bigint + 1) g",
            &[&poison, &INNOCENT],
        )
        .await
        .unwrap();
}

/// Waits until only the poison is left, dead, and all others are done.
async fn assert_only_poison_died(client: &Client, poison: &str, attempts: i32) {
    eventually(
        Duration::from_secs(60),
        "the innocent are done and the poison is dead",
        async || {
            let dead: i64 = client.one("SELECT count(*) FROM posthaste.dead").await?;
            Ok(dead == 1 && unfinished(client).await == 1)
        },
    )
    .await
    .unwrap();
    let row = client
        .query_one("SELECT name, state, attempt FROM posthaste.dead", &[])
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, &str>(1)),
        (poison, "dead"),
        "no innocent died"
    );
    assert_eq!(
        row.get::<_, i32>(2),
        attempts,
        "it used up its own attempts"
    );
}

/// Runs the observer's connection: a handler that loops forever may block other tasks on the
/// runtime of the handlers.
static OBSERVER: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// No JSON object deserializes to this.
#[derive(Deserialize, Serialize)]
struct Undecodable(Vec<u8>);

impl JobArgs for Undecodable {
    const NAME: &'static str = "undecodable";
}

/// Ends the loop however the test ends: a blocked thread cannot be stopped from outside.
struct Enough(Arc<AtomicBool>);

impl Drop for Enough {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An error whose `Display` panics.
#[derive(Debug)]
struct Unprintable;

impl std::fmt::Display for Unprintable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("poison")
    }
}

impl std::error::Error for Unprintable {}

async fn survives(name: &'static str) {
    let db = database(PgVersion::any()).await;
    let url = db.url().to_owned();
    let client = OBSERVER.spawn(async move { connect(&url).await.unwrap() });
    let client = client.await.unwrap();
    enqueue_around(&client, name).await;
    let good = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&good);
    let enough = Enough(Arc::default());
    let looping = Arc::clone(&enough.0);
    let worker = worker(&db.pool(4).unwrap())
        .queue_config(QueueConfig {
            backoff: QUICK,
            timeout: Duration::from_secs(1),
            ..QueueConfig::new("default", 4)
        })
        .handler("good", move |_, job| {
            let seen = Arc::clone(&seen);
            async move {
                assert_eq!(job.attempt, 1, "an attempt of an innocent job was counted");
                seen.fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::Done)
            }
        })
        .handler("panic", |_, _| async { panic!("poison") })
        .handler("panic in an error", |_, _| async {
            Err(Unprintable.into())
        })
        .handler("panic early", |_, job| {
            assert!(job.kwargs_json().is_empty(), "poison");
            async { Ok(Outcome::Done) }
        })
        .job(async |_, _: Undecodable| {})
        .handler("sleeps for ever", |_, _| async {
            std::future::pending::<()>().await;
            Ok(Outcome::Done)
        })
        .handler("loops for ever", move |_, _| {
            let looping = Arc::clone(&looping);
            async move {
                while !looping.load(Ordering::Relaxed) {
                    // It blocks its thread, and leaves the processor to others.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(Outcome::Done)
            }
        })
        .start()
        .await
        .unwrap();
    assert_only_poison_died(&client, name, 3).await;
    let good = good.load(Ordering::SeqCst);
    assert_eq!(i64::try_from(good), Ok(INNOCENT), "each innocent job once");
    if name.contains("panic") {
        let error = "SELECT last_error FROM posthaste.dead";
        let error: String = client.one(error).await.unwrap();
        assert!(error.starts_with("panicked: poison"), "{error}");
    }
    drop(enough);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panicking_job_costs_only_its_own_attempts() {
    survives("panic").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panic_before_the_handlers_future_costs_only_its_own_attempts() {
    survives("panic early").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_panic_in_an_errors_display_costs_only_its_own_attempts() {
    survives("panic in an error").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_with_undecodable_arguments_costs_only_its_own_attempts() {
    survives("undecodable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_never_ends_costs_only_its_own_attempts() {
    survives("sleeps for ever").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn an_endless_loop_blocks_a_thread_and_costs_only_its_own_attempts() {
    survives("loops for ever").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_aborts_its_process_is_isolated_and_spares_the_others() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    enqueue_around(&client, "abort").await;
    let done = async || {
        let dead: i64 = client.one("SELECT count(*) FROM posthaste.dead").await?;
        anyhow::Ok(dead == 1 && unfinished(&client).await == 1)
    };
    let mut kills = 0;
    let mut process = start_process(&db);
    let deadline = std::time::Instant::now() + Duration::from_secs(90);
    while !done().await? {
        assert!(
            std::time::Instant::now() < deadline,
            "not done after {kills} kills"
        );
        if process.exit(Duration::from_millis(50)).await.is_ok() {
            kills += 1;
            process = start_process(&db);
        }
    }
    process.kill().unwrap();
    assert_only_poison_died(&client, "abort", 3).await;
    assert_eq!(
        kills, 4,
        "once among others, which counts as no attempt, then alone for each attempt"
    );
    let counted: i64 = client
        .one("SELECT count(*) FROM poison_log WHERE attempt > 1 AND name = 'good'")
        .await?;
    assert_eq!(counted, 0, "no attempt of an innocent job was counted");
    posthaste_testkit::ran::count("aborts", kills);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quarantined_job_at_startup_kills_no_waiting_jobs() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    // Separate transactions: a claim sees what others have committed.
    for step in [
        "INSERT INTO posthaste.job (name, max_attempts) VALUES ('abort', 3)",
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('default', '{0}', max(id), gen_random_uuid(), 10, 1000000) \
         FROM posthaste.worker",
    ] {
        client.run(step).await?;
    }
    let waiting = "INSERT INTO posthaste.job (name) SELECT 'good' FROM generate_series(1, $1)";
    for run in 0..3 {
        rescue_the_dead(&client).await;
        eventually(SOON, "the poison is due", async || {
            let due = "SELECT count(*) FROM posthaste.quarantine_queues()";
            Ok(client.one::<i64>(due).await? == 1)
        })
        .await?;
        client.execute(waiting, &[&WAITING]).await?;
        let mut process = start_process(&db);
        let ended = process.exit(SOON).await;
        assert!(ended.is_ok(), "the poison did not strike in run {run}");
    }
    rescue_the_dead(&client).await;
    let mut process = start_process(&db);
    assert_only_poison_died(&client, "abort", 3).await;
    process.kill().unwrap();
    let row = client
        .query_one(
            "SELECT count(*), count(*) FILTER (WHERE attempt > 1 OR crashes > 0) FROM poison_log",
            &[],
        )
        .await?;
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, i64>(1)),
        (3 * i64::from(WAITING), 0),
        "each innocent ran once, none in quarantine"
    );
    Ok(())
}

/// Rescues the jobs of processes that are known to be dead, without waiting for their heartbeats.
async fn rescue_the_dead(client: &Client) {
    let rescue = "SELECT posthaste.rescue(id, beat) FROM posthaste.worker WHERE id = $1";
    eventually(SOON, "nothing runs any more", async || {
        for row in client.query("SELECT id FROM posthaste.worker", &[]).await? {
            client.execute(rescue, &[&row.get::<_, i64>(0)]).await?;
        }
        Ok(count(client, "running").await == 0)
    })
    .await
    .unwrap();
}

fn start_process(db: &TestDb) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "poison::a_worker_process",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(WORKER_ENV, db.url());
    Child::spawn(&mut command).unwrap()
}

/// Not a test: the worker that the test above starts as a separate process.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "a process that another test starts"]
async fn a_worker_process() -> TestResult {
    let Ok(url) = std::env::var(WORKER_ENV) else {
        return Ok(());
    };
    let manager = deadpool_postgres::Manager::new(url.parse()?, tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager)
        .max_size(4)
        .build()
        .unwrap();
    pool.get()
        .await?
        .run("CREATE TABLE IF NOT EXISTS poison_log (name text, attempt integer, crashes smallint)")
        .await?;
    let log = pool.clone();
    let worker = worker(&pool)
        .queue_config(QueueConfig {
            backoff: QUICK,
            ..QueueConfig::new("default", 8)
        })
        .handler("good", move |_, job| {
            let log = log.clone();
            async move {
                log.get()
                    .await?
                    .execute(
                        "INSERT INTO poison_log VALUES ($1, $2, $3)",
                        &[&&*job.name, &job.attempt, &job.crashes],
                    )
                    .await?;
                Ok(Outcome::Done)
            }
        })
        .handler("abort", |_, _| async { std::process::abort() })
        .start()
        .await?;
    worker.run_until_signal().await?;
    Ok(())
}
