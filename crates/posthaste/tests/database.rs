//! The sources of a worker's connections: a sqlx pool, a URL, a local socket, with passwords of any
//! characters; and the errors when they cannot be reached.

mod secured;

use std::fs;
use std::time::Duration;

use posthaste::{Config, Database, NewJob, Outcome, Worker, WorkerHandle, connect, enqueue};
use posthaste_testkit::{PgServer, PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::Client;

use crate::support::{SOON, all_done, connected, database, migrated, number, quick, telling};

/// Longer than any test: a job that starts sooner was notified.
const NEVER: Duration = Duration::from_secs(3600);
/// All letters with a meaning in a URL or in a `key=value` text.
const PASSWORD: &str = "p@:/ %25?#&'\\é";
/// The same password in a URL.
const ENCODED: &str = "p%40%3A%2F%20%2525%3F%23%26%27%5C%C3%A9";

/// Starts a worker on this database that polls once an hour, and returns a channel of the jobs that
/// it starts.
async fn sleeper(database: impl Into<Database>) -> (WorkerHandle, UnboundedReceiver<()>) {
    let sleeping = Config {
        poll_interval: NEVER,
        ..quick()
    };
    telling(Worker::builder(database).config(sleeping)).await
}

/// Waits until the worker is notified of jobs.
async fn asleep(client: &Client) {
    eventually(SOON, "notifications are on", async || {
        let on = "SELECT posthaste.listeners() & posthaste.listener_bit('default')";
        Ok(number(client, on).await != 0)
    })
    .await
    .unwrap();
}

/// Checks that a worker on this database listens, is notified of a job and runs it.
async fn assert_runs_a_job_at_once(database: impl Into<Database>, client: &Client) {
    let (worker, mut started) = sleeper(database).await;
    asleep(client).await;
    let job = NewJob::new("mail", &json!({})).unwrap();
    enqueue(client, &job).await.unwrap();
    let message = tokio::time::timeout(SOON, started.recv()).await;
    message.expect("notified").expect("a job");
    all_done(client).await;
    worker.stop().await.unwrap();
}

/// Returns the error of a worker's start on this database.
async fn refusal(database: impl Into<Database>) -> String {
    let worker = Worker::builder(database)
        .queue("default", 1)
        .handler("x", async |_, _| Ok(Outcome::Done));
    let error = worker.start().await.err().expect("a refusal");
    assert!(
        !format!("{error} {error:?}").contains("geheim"),
        "{error:?}"
    );
    error.to_string()
}

fn options(db: &TestDb) -> PgConnectOptions {
    db.url().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_workers_are_notified_of_jobs_of_sqlx_transactions() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let pool = PgPool::connect(db.url()).await.unwrap();
    let (worker, mut started) = sleeper(&pool).await;
    asleep(&client).await;
    let mut tx = pool.begin().await.unwrap();
    let job = NewJob::new("mail", &json!({})).unwrap();
    enqueue(&mut *tx, &job).await.unwrap();
    tx.commit().await.unwrap();
    let message = tokio::time::timeout(SOON, started.recv()).await;
    message.expect("notified").expect("a job");
    all_done(&client).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_from_a_url_is_notified_and_sets_its_application_name() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    assert_runs_a_job_at_once(connect(db.url()).unwrap(), &client).await;
    let (worker, _) = sleeper(connect(db.url()).unwrap()).await;
    let named = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name = 'posthaste' AND datname = current_database()";
    eventually(SOON, "the worker connects", async || {
        Ok(number(&client, named).await > 1)
    })
    .await?;
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_from_a_deadpool_pool_listens_on_its_own_connection() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let pool = Database::from(db.pool(2).unwrap());
    let server = connect(db.url()).unwrap();
    assert_runs_a_job_at_once(pool.clone().notifier_at(server), &client).await;
    let message = refusal(pool.clone().notifier_at(pool)).await;
    assert!(message.contains("use WorkerBuilder::notifier"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_notifier_polls() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let database = connect(db.url()).unwrap().without_notifier();
    let (worker, mut started) = {
        let (sender, started) = unbounded_channel();
        let worker = Worker::builder(database)
            .config(quick())
            .queue("default", 1)
            .handler("*", move |_, _| {
                let _ = sender.send(());
                async { Ok(Outcome::Done) }
            });
        (worker.start().await.unwrap(), started)
    };
    for _ in 0..3 {
        let job = NewJob::new("mail", &json!({})).unwrap();
        enqueue(&client, &job).await.unwrap();
        started.recv().await.unwrap();
    }
    assert_eq!(number(&client, "SELECT posthaste.listeners()").await, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_programs_migrate_without_another_driver() {
    let server = PgServer::shared(PgVersion::any()).unwrap();
    let db = TestDb::empty(server).await.unwrap();
    let database = Database::from(PgPool::connect_lazy_with(options(&db)));
    let mut client = database.client().await.unwrap();
    assert!(posthaste::check_schema(&client).await.is_err());
    posthaste::migrate(&mut client).await.unwrap();
    posthaste::check_schema(&client).await.unwrap();
    drop(client);
    let left = db.client().await.unwrap();
    eventually(SOON, "its connection is closed", async || {
        let others = "SELECT count(*) FROM pg_stat_activity \
                      WHERE datname = current_database() AND pid <> pg_backend_pid()";
        Ok(number(&left, others).await == 0)
    })
    .await
    .unwrap();
    let pool = database.pool(1).unwrap();
    let pooled = pool.get().await.unwrap();
    assert_eq!(number(&pooled, "SELECT 7::bigint").await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_with_any_characters_work_over_tcp_and_sockets() {
    // The cost of checking a password does not matter here.
    let settings = [("unix_socket_directories", "."), ("scram_iterations", "1")];
    let server = PgServer::start(PgVersion::V18, &settings).unwrap();
    let db = migrated(&server).await;
    let client = db.client().await.unwrap();
    let role = format!(
        "CREATE ROLE \"a@b:c/d %\" SUPERUSER LOGIN PASSWORD {}",
        tokio_postgres_literal(PASSWORD)
    );
    client.run(&role).await.unwrap();
    let rules = "host all postgres 127.0.0.1/32 trust\n\
                 host all all 127.0.0.1/32 scram-sha-256\n\
                 local all all scram-sha-256\n";
    fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    let reload = "SELECT pg_reload_conf()";
    client.run(reload).await.unwrap();
    let (data, address, name) = (server.data(), server.address(), db.name());
    let data = data.to_str().unwrap();
    // Until the rules are loaded, a wrong password is accepted too.
    let wrong = format!("postgres://a%40b%3Ac%2Fd%20%25:geheim@{address}/{name}");
    eventually(SOON, "the server asks for passwords", async || {
        Ok(connect(&wrong).unwrap().client().await.is_err())
    })
    .await
    .unwrap();
    let message = refusal(connect(&wrong).unwrap()).await;
    let place = format!("cannot connect to Postgres at {address}, database \"{name}\": ");
    assert!(message.starts_with(&place), "{message}");
    assert!(
        message.contains("password authentication failed"),
        "{message}"
    );

    let user = format!("a%40b%3Ac%2Fd%20%25:{ENCODED}");
    let socket = data.replace('/', "%2F");
    let port = address.port();
    for url in [
        format!("postgres://{user}@{address}/{name}"),
        format!("postgres://{user}@{socket}:{port}/{name}"),
        // A socket has no TLS, so it is not required.
        format!("postgres://{user}@{socket}:{port}/{name}?sslmode=require"),
    ] {
        assert_runs_a_job_at_once(connect(&url).unwrap(), &client).await;
    }
    let by_tcp = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username("a@b:c/d %")
        .password(PASSWORD)
        .database(name);
    for options in [
        by_tcp.clone(),
        by_tcp.clone().socket(data),
        by_tcp.host(data),
    ] {
        let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
        assert_runs_a_job_at_once(&pool, &client).await;
    }
}

#[tokio::test]
async fn rejects_malformed_urls_without_repeating_them() {
    let way_out = "Write postgres://user:password@host:5432/database.";
    let not_one = format!("the URL of the database is not a Postgres address. {way_out}");
    let no_host = format!("the URL of the database names no host. {way_out}");
    let foreign =
        "the URL of the database has sslcrl, which posthaste does not support. Remove it.";
    for (url, message) in [
        ("geheim", &*not_one),
        ("password=geheim geheim=x host=h", &not_one),
        ("postgres://ann:geheim@/app", &no_host),
        ("postgres://ann:geheim@db/app?sslcrl=x", foreign),
        (
            "postgres://ann:geheim@db/app?sslcert=/absent.crt",
            "sslcert needs sslkey, the file of its key",
        ),
    ] {
        let error = connect(url).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
    }
    let database = connect("postgres://ann:geheim@db.example.org/app").unwrap();
    let shown = format!("{database:?}");
    assert_eq!(
        shown,
        r#"Database(Some("db.example.org:5432, database \"app\""))"#
    );
}

/// Quotes a text for SQL.
fn tokio_postgres_literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
