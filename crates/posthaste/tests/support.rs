//! Helpers that the tests share: a separate migrated database, a worker with short intervals, and
//! external views of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use posthaste::{
    Backoff, Config, Context, HandlerResult, Outcome, QueueConfig, Worker, WorkerBuilder,
    WorkerHandle,
};
use posthaste_testkit::{PgServer, PgVersion, TestDb, TestResult, connect, reaches};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio_postgres::Client;

/// A worker sends this when it starts. It rejects a copy of a store in which jobs were worked.
const GREETING: &str = "SELECT posthaste.check_identity()";

/// The longest that a test waits for an expected state.
pub const SOON: Duration = Duration::from_secs(60);

/// Creates a migrated database on the shared server of this version.
pub async fn database(version: PgVersion) -> TestDb {
    // RUST_LOG=posthaste=debug prints the engine's log; otherwise the test's own capture suppresses
    // it.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    let server = PgServer::shared(version).expect("a shared server");
    posthaste_testkit::ran::note(server.version().name());
    migrated(server).await
}

/// Creates a migrated database on the shared server of this version, and connects to it.
pub async fn connected(version: PgVersion) -> TestResult<(TestDb, Client)> {
    let db = database(version).await;
    let client = db.client().await?;
    Ok((db, client))
}

/// Creates a migrated database on a separate server of the test.
pub async fn migrated(server: &PgServer) -> TestDb {
    let copy = TestDb::from_template(server, "posthaste", async |url| {
        let mut client = connect(&url).await?;
        posthaste::migrate(&mut client).await?;
        Ok(())
    })
    .await;
    copy.expect("a migrated database")
        .with_first_statement(GREETING)
}

/// Returns a worker on this pool whose intervals are short enough for tests.
pub fn worker(pool: &Pool) -> WorkerBuilder {
    Worker::builder(pool.clone()).config(quick())
}

/// Settings whose intervals are short enough for tests.
pub fn quick() -> Config {
    Config {
        poll_interval: Duration::from_millis(100),
        promote_interval: Duration::from_millis(150),
        heartbeat_interval: Duration::from_millis(300),
        rescue_after: Duration::from_millis(1500),
        shutdown_grace: Duration::from_secs(5),
        maintenance_interval: Duration::from_millis(200),
        expire_interval: Duration::from_millis(400),
        ..Config::default()
    }
}

/// A back-off that is short enough for tests.
const QUICK: Backoff = Backoff {
    base: Duration::from_millis(20),
    cap: Duration::from_millis(100),
};

/// Returns the queue `default`, four jobs at once, with that back-off.
pub fn quick_queue() -> QueueConfig {
    QueueConfig {
        backoff: QUICK,
        ..QueueConfig::new("default", 4)
    }
}

/// Starts this worker on the queue `default`; returns a message for each job that it starts.
pub async fn telling(worker: WorkerBuilder) -> (WorkerHandle, UnboundedReceiver<()>) {
    let (sender, started) = unbounded_channel();
    let worker = worker
        .queue("default", 4)
        .handler("*", move |_, _| {
            let _ = sender.send(());
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .expect("a worker");
    (worker, started)
}

/// Starts a worker whose jobs are done at once; returns it and its count of jobs.
pub async fn counting(db: &TestDb) -> (WorkerHandle, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = worker(&db.pool(4).expect("a pool"))
        .queue_config(quick_queue())
        .handler("*", move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .expect("a worker");
    (worker, runs)
}

/// Registers a worker whose claims the test makes; returns its id.
pub async fn hand(client: &Client) -> i64 {
    number(
        client,
        "INSERT INTO posthaste.worker (name) VALUES ('hand') RETURNING id",
    )
    .await
}

/// Returns the one number that a statement returns.
pub async fn number(client: &Client, sql: &str) -> i64 {
    posthaste_testkit::number(client, sql)
        .await
        .expect("a number")
}

/// Completes the job of a run in a transaction, which commits when it is released. The transaction
/// outlives the attempt: a separate task keeps it open beyond the timeout.
pub async fn completed_when(
    mut released: watch::Receiver<bool>,
    pool: Pool,
    context: Context,
) -> HandlerResult {
    tokio::spawn(async move {
        let mut client = pool.get().await.unwrap();
        let tx = client.transaction().await.unwrap();
        context.complete_in(&tx).await.unwrap();
        released.wait_for(|over| *over).await.unwrap();
        tx.commit().await.unwrap();
    })
    .await?;
    Ok(Outcome::Done)
}

/// Returns a client for operations over this connection.
pub fn jobs(client: &Client) -> posthaste::Client<&Client> {
    posthaste::Client::new(client)
}

/// Counts jobs of the view in this state.
pub async fn count(client: &Client, state: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM posthaste.job WHERE state = '{state}'");
    number(client, &sql).await
}

/// Counts jobs that are not done, whatever their state.
pub async fn unfinished(client: &Client) -> i64 {
    number(client, "SELECT count(*) FROM posthaste.job").await
}

/// Waits until this many jobs of the view are in this state.
pub async fn count_reaches(client: &Client, state: &str, jobs: i64) -> anyhow::Result<()> {
    let observe = async || Ok(count(client, state).await);
    reaches(SOON, &format!("{state} jobs"), jobs, observe).await
}

/// Waits until this many jobs are not done.
pub async fn unfinished_reaches(client: &Client, jobs: i64) -> anyhow::Result<()> {
    let observe = async || Ok(unfinished(client).await);
    reaches(SOON, "unfinished jobs", jobs, observe).await
}

/// Whether every worker has deregistered.
pub async fn all_signed_off(client: &Client) -> bool {
    let sql = "SELECT bool_and(stopped_at IS NOT NULL) FROM posthaste.worker";
    let row = client.query_one(sql, &[]).await;
    row.expect("the workers").get(0)
}

/// Waits until no job is left.
pub async fn all_done(client: &Client) {
    unfinished_reaches(client, 0).await.expect("all jobs done");
}
