//! What a worker logs about its runs: a line for each outcome, errors with all their causes,
//! consistent numbers of attempts, and queues that no worker serves.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use posthaste::{
    Context, Error, HandlerResult, Job, JobArgs, NewJob, Outcome, QueueConfig, RetryLater, Worker,
    enqueue,
};
use posthaste_testkit::{PgVersion, TestResult, eventually};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use crate::support::{SOON, connected, database, jobs, number, quick_queue, worker};

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let writer = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish()
    }

    /// Returns the lines about jobs of this name.
    fn of(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let named = format!("name=\"{name}\"");
        let lines = text.lines().filter(|line| line.contains(&named));
        lines.map(str::to_owned).collect()
    }
}

async fn put(client: &Client, name: &str, most: i32) {
    let job = NewJob::new(name, &json!({"n": "geheim"})).unwrap();
    enqueue(client, &job.max_attempts(Some(most)))
        .await
        .unwrap();
}

/// Waits until the job is dead; returns its last error.
async fn last_error(client: &Client, name: &str) -> String {
    let dead = "SELECT last_error FROM posthaste.dead WHERE name = $1";
    let mut error = String::new();
    eventually(SOON, "the job is dead", async || {
        let row = client.query_opt(dead, &[&name]).await?;
        error = row.map_or_else(String::new, |row| row.get(0));
        Ok(!error.is_empty())
    })
    .await
    .unwrap();
    error
}

#[tokio::test]
async fn each_run_has_a_span_with_handler_logs_and_outcome() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.subscriber());
    put(&client, "spanned", 1).await;
    let running = worker(&db.pool(2)?)
        .queue("default", 2)
        .handler("spanned", async |_, _| {
            tracing::info!("the handler is at work");
            tokio::task::yield_now().await;
            Err("no luck".into())
        })
        .start()
        .await?;
    last_error(&client, "spanned").await;
    running.stop().await?;
    let lines = log.of("spanned");
    for expected_text in ["the handler is at work", "a job is dead"] {
        let line = lines
            .iter()
            .find(|line| line.contains(expected_text))
            .unwrap();
        let (_, span) = line.split_once("job{job=").unwrap_or_default();
        let within = r#" name="spanned" queue="default" attempt=1}: "#;
        assert!(span.contains(within), "{line}");
    }
    Ok(())
}

/// The handlers run on the thread of the test, whose log is collected.
#[tokio::test]
async fn outcome_log_lines_name_the_job_and_hide_arguments() -> TestResult {
    #[derive(serde::Deserialize, serde::Serialize)]
    struct Number {
        n: u32,
    }
    impl JobArgs for Number {
        const NAME: &'static str = "typed";
    }
    let (db, client) = connected(PgVersion::any()).await?;
    let log = Log::default();
    let _logged = tracing::subscriber::set_default(log.subscriber());
    let worker = worker(&db.pool(4)?)
        .queue_config(quick_queue())
        .handler("again", async |_, job| match job.attempt {
            1 => Err(anyhow!("a cause").context("a failure").into()),
            _ => Ok(Outcome::Done),
        })
        .handler("hopeless", async |_, _| Err("no hope".into()))
        .handler("panics", |_, _| async { panic!("at the disco") })
        .handler("bad", async |_, _| {
            let reason = "never".into();
            Ok(Outcome::Discard { reason })
        })
        .handler("later", async |_, _| {
            Err(RetryLater::without_attempt(Duration::from_secs(3_600), "no quota").into())
        })
        .job(async |_, number: Number| Err::<(), _>(format!("{} is a number", number.n)))
        .start()
        .await?;
    for (name, most) in [
        ("again", 3),
        ("hopeless", 2),
        ("panics", 1),
        ("bad", 3),
        ("later", 3),
        ("typed", 1),
    ] {
        put(&client, name, most).await;
    }
    eventually(SOON, "all have ended", async || {
        let open = "SELECT count(*) FROM posthaste.job WHERE state IN ('available', 'running', \
                    'retrying')";
        Ok(number(&client, open).await == 0 && !log.of("later").is_empty())
    })
    .await?;
    for (name, expected) in [
        (
            "again",
            &[
                ("WARN", 1, "error=\"a failure: a cause\""),
                ("DEBUG", 2, "a job is done"),
            ][..],
        ),
        (
            "hopeless",
            &[("WARN", 1, "no hope"), ("ERROR", 2, "a job is dead")],
        ),
        ("panics", &[("ERROR", 1, "panicked: at the disco")]),
        ("bad", &[("WARN", 1, "a job was discarded")]),
        (
            "later",
            &[("WARN", 1, "no quota"), ("DEBUG", 1, "no quota")],
        ),
        (
            "typed",
            &[("ERROR", 1, "the arguments do not match their type")],
        ),
    ] {
        let lines = log.of(name);
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, (level, attempt, expected_text)) in lines.iter().zip(expected) {
            assert!(line.contains(level), "{line}");
            assert!(line.contains(&format!(" attempt={attempt}")), "{line}");
            assert!(line.contains("queue=\"default\""), "{line}");
            assert!(line.contains(expected_text), "{line}");
            assert!(!line.contains("geheim"), "{line}");
        }
    }
    let kept = last_error(&client, "typed").await;
    assert!(kept.starts_with("kwargs.n: "), "{kept}");
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn the_stored_error_includes_every_cause() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(2)?;
    let absent = absent(db.url());
    let worker = worker(&db.pool(4)?)
        .queue_config(quick_queue())
        .handler("anyhow", async |_, _| {
            let full: anyhow::Result<()> = Err(anyhow!("the disk is full"));
            full.context("cannot write").context("no report")?;
            Ok(Outcome::Done)
        })
        .handler("postgres", move |_, _| {
            let pool = pool.clone();
            async move {
                pool.get()
                    .await?
                    .batch_execute("SELECT FROM absent")
                    .await?;
                Ok(Outcome::Done)
            }
        })
        .handler("pool", move |_, _| {
            let absent = absent.clone();
            async move {
                let _absent = absent.get().await?;
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    let missing = "relation \"absent\" does not exist (42P01)";
    let pool =
        "Error occurred while creating a new object: database \"absent\" does not exist (3D000)";
    for (name, error) in [
        ("anyhow", "no report: cannot write: the disk is full"),
        ("postgres", missing),
        ("pool", pool),
    ] {
        put(&client, name, 1).await;
        assert_eq!(last_error(&client, name).await, error);
    }
    worker.stop().await?;
    Ok(())
}

/// Creates a pool for a database that does not exist.
fn absent(url: &str) -> deadpool_postgres::Pool {
    let mut config: tokio_postgres::Config = url.parse().unwrap();
    config.dbname("absent").password("geheim");
    let manager = deadpool_postgres::Manager::new(config, NoTls);
    deadpool_postgres::Pool::builder(manager).build().unwrap()
}

async fn not_started(pool: deadpool_postgres::Pool) -> Error {
    let worker = Worker::builder(pool)
        .queue("default", 1)
        .handler("x", async |_, _| Ok(Outcome::Done));
    worker.start().await.err().unwrap()
}

#[tokio::test]
async fn connection_errors_name_the_server_without_the_password() {
    let db = database(PgVersion::any()).await;
    let error = not_started(absent(db.url())).await;
    let message = error.to_string();
    assert!(
        message.contains("database \"absent\" does not exist (3D000)"),
        "{message}"
    );
    assert!(message.contains(", database \"absent\": "), "{message}");
    assert!(!message.contains("geheim") && !format!("{error:?}").contains("geheim"));
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.is::<deadpool_postgres::PoolError>(), "{source:?}");
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let url = format!("postgres://ann:geheim@127.0.0.1:{port}/app");
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let message = not_started(pool).await.to_string();
    let place = format!("cannot connect to Postgres at 127.0.0.1:{port}, database \"app\": ");
    assert!(message.starts_with(&place), "{message}");
    assert!(
        message.to_lowercase().contains("connection refused"),
        "{message}"
    );
}

async fn done(_: Context, _: Arc<Job>) -> HandlerResult {
    Ok(Outcome::Done)
}

#[tokio::test]
async fn rejects_two_handlers_of_one_name() {
    let db = database(PgVersion::any()).await;
    for name in ["mail.send", "mail.*", "*"] {
        let twice = Worker::builder(db.pool(1).unwrap())
            .queue("default", 1)
            .handler(name, done)
            .handler(name, done);
        let refused = twice.start().await.err().unwrap().to_string();
        let expected_text = format!("there are two handlers for {name:?}: give one");
        assert_eq!(refused, expected_text);
    }
}

#[tokio::test]
async fn counters_distinguish_unserved_queues_from_busy_ones() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let (release, released) = tokio::sync::watch::channel(false);
    let worker = worker(&db.pool(4)?)
        .queue_config(QueueConfig::new("default", 1))
        .handler("*", move |_, _| {
            let mut released = released.clone();
            async move {
                released.wait_for(|over| *over).await?;
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    for _ in 0..20 {
        put(&client, "slow", 1).await;
    }
    let mistyped = NewJob::new("letter", &json!({}))?.queue("mial");
    enqueue(&client, &mistyped).await?;
    eventually(SOON, "the worker is known", async || {
        let known = "SELECT count(*) FROM posthaste.worker WHERE queues = '{default}'";
        Ok(number(&client, known).await == 1)
    })
    .await?;
    let oldest = jobs(&client).counters().await?.oldest;
    let message: Vec<(&str, bool)> = oldest
        .iter()
        .map(|one| (one.queue.as_str(), one.is_worked))
        .collect();
    assert_eq!(message, [("default", true), ("mial", false)]);
    release.send_replace(true);
    worker.stop().await?;
    Ok(())
}
