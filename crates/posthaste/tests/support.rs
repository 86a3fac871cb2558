//! What the tests share: a migrated database of one's own, a worker with quick clocks, and views of
//! the store from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Pool;
use posthaste::{
    Backoff, Config, Context, HandlerResult, Outcome, QueueConfig, Worker, WorkerBuilder,
    WorkerHandle,
};
use posthaste_testkit::{PgServer, PgVersion, TestDb, connect};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio_postgres::Client;

/// A worker asks this when it starts. It refuses a copy in which something was worked before.
const GREETING: &str = "SELECT posthaste.check_identity()";

/// The longest a test waits for something that should be there soon.
pub const SOON: Duration = Duration::from_secs(60);

/// A migrated database on the shared server of this version.
pub async fn database(version: PgVersion) -> TestDb {
    // RUST_LOG=posthaste=debug shows what the engine does; the test's own capture keeps it quiet
    // otherwise.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    let server = PgServer::shared(version).expect("a shared server");
    posthaste_testkit::ran::note(server.version().name());
    migrated(server).await
}

/// A migrated database on a server of the test's own.
pub async fn migrated(server: &PgServer) -> TestDb {
    let copy = TestDb::from_template(server, "posthaste", async |url| {
        let mut client = connect(&url).await?;
        posthaste::migrate(&mut client).await?;
        Ok(())
    })
    .await;
    copy.expect("a migrated database").greeted(GREETING)
}

/// A worker on this pool whose clocks are quick enough for tests.
pub fn worker(pool: &Pool) -> WorkerBuilder {
    Worker::builder(pool.clone()).config(quick())
}

/// Settings whose clocks are quick enough for tests.
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

/// A back-off quick enough for tests.
const QUICK: Backoff = Backoff {
    base: Duration::from_millis(20),
    cap: Duration::from_millis(100),
};

/// The queue `default`, four jobs at once, with that back-off.
pub fn quick_queue() -> QueueConfig {
    QueueConfig {
        backoff: QUICK,
        ..QueueConfig::new("default", 4)
    }
}

/// This worker on the queue `default`, and a word of each job that it starts.
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

/// A worker whose jobs are done at once, and how many were.
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

/// Registers a worker whose claims are made by hand: its number.
pub async fn hand(client: &Client) -> i64 {
    number(
        client,
        "INSERT INTO posthaste.worker (name) VALUES ('hand') RETURNING id",
    )
    .await
}

/// The one number that a statement returns.
pub async fn number(client: &Client, sql: &str) -> i64 {
    posthaste_testkit::number(client, sql)
        .await
        .expect("a number")
}

/// A handler's run that completes its job in a transaction and commits when it is released. The
/// transaction outlives the attempt: a task of its own keeps it open beyond the timeout.
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

/// What operators do, over this connection.
pub fn jobs(client: &Client) -> posthaste::Client<&Client> {
    posthaste::Client::new(client)
}

/// Jobs of the view in this state.
pub async fn count(client: &Client, state: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM posthaste.job WHERE state = '{state}'");
    number(client, &sql).await
}

/// Jobs that are not done, whatever their state.
pub async fn unfinished(client: &Client) -> i64 {
    number(client, "SELECT count(*) FROM posthaste.job").await
}

/// Whether every worker has signed off.
pub async fn all_signed_off(client: &Client) -> bool {
    let sql = "SELECT bool_and(stopped_at IS NOT NULL) FROM posthaste.worker";
    let row = client.query_one(sql, &[]).await;
    row.expect("the workers").get(0)
}

/// Waits until no job is left.
pub async fn all_done(client: &Client) {
    posthaste_testkit::reaches(SOON, "all jobs are done", 0, async || {
        Ok(unfinished(client).await)
    })
    .await
    .expect("all jobs done");
}
