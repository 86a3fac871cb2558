//! Jobs that come back without an effect: rolled back, given back or snoozed without a delay. Each
//! return counts as an attempt or waits longer than the last one, and is logged.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use posthaste::consumer::{Consumer, Delivery};
use posthaste::{NewJob, Outcome, WorkerHandle, enqueue};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::lifecycle::job;
use crate::support::{SOON, all_done, connected, database, number, quick_queue, worker};

/// The log of this process, of all threads.
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
    fn for_process() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let begin = || {
            let log = Self::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_ansi(false);
            let lines = lines.with_writer(move || writer.clone()).finish();
            tracing::subscriber::set_global_default(lines).unwrap();
            log
        };
        LOG.get_or_init(begin).clone()
    }

    /// Returns the lines that contain all of these parts.
    fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let holds = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(holds).map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolled_back_completions_count_as_attempts_and_are_logged() -> TestResult {
    let log = Log::for_process();
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(8)?;
    let inner = pool.clone();
    let worker = worker(&pool)
        .queue_config(quick_queue())
        .handler("*", move |context, job| {
            let pool = inner.clone();
            async move {
                let mut client = pool.get().await?;
                let tx = client.transaction().await?;
                context.complete_in(&tx).await?;
                if &*job.name == "committed" {
                    tx.commit().await?;
                }
                Ok(Outcome::Done)
            }
        })
        .start()
        .await?;
    for name in ["committed", "rolled.back"] {
        let job = NewJob::new(name, &json!({}))?.max_attempts(Some(3));
        enqueue(&client, &job).await?;
    }
    let attempts = "SELECT count(*) FROM posthaste.attempt";
    eventually(SOON, "it is dead", async || {
        let dead = "SELECT name, attempt, last_error FROM posthaste.job";
        let rows = client.query(dead, &[]).await?;
        let [row] = &rows[..] else { return Ok(false) };
        let (name, attempt): (String, i32) = (row.get(0), row.get(1));
        let error: Option<String> = row.get(2);
        let error = error.unwrap_or_default();
        Ok((name.as_str(), attempt) == ("rolled.back", 3) && error.contains("not committed"))
    })
    .await?;
    assert_eq!(number(&client, attempts).await, 3);
    worker.stop().await?;
    let logged = log.lines(&["an attempt failed", "rolled.back", "was not committed"]);
    assert_eq!(logged.len(), 2, "{logged:?}");
    assert_eq!(log.lines(&["a job is dead", "rolled.back"]).len(), 1);
    assert!(log.lines(&["name=\"committed\""]).is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_lose_their_job_do_not_count_as_completed() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    let pool = db.pool(8)?;
    let inner = pool.clone();
    let runs = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&runs);
    let worker = worker(&pool)
        .queue_config(quick_queue())
        .handler("*", move |context, _| {
            let (pool, runs) = (inner.clone(), Arc::clone(&counted));
            async move {
                *runs.lock().unwrap() += 1;
                if *runs.lock().unwrap() > 1 {
                    return Ok(Outcome::Done);
                }
                let mut client = pool.get().await?;
                let lose = "SELECT posthaste.return_claim(max(id), NULL) FROM posthaste.worker";
                client.run(lose).await?;
                let tx = client.transaction().await?;
                let lost = context.complete_in(&tx).await.unwrap_err();
                assert!(lost.is_lost(), "{lost}");
                Err(lost.into())
            }
        })
        .start()
        .await?;
    enqueue(&client, &job("lost")).await?;
    all_done(&client).await;
    worker.stop().await?;
    assert_eq!(*runs.lock().unwrap(), 2);
    let counted = posthaste::Client::new(&client).counters().await?;
    let completed: i64 = counted.jobs.iter().map(|one| one.completed_total).sum();
    assert_eq!(completed, 1, "it was completed once");
    Ok(())
}

/// Gives every job back at once, and reports it.
struct Unwilling(UnboundedSender<()>);

impl Consumer for Unwilling {
    fn capacity(&self) -> usize {
        10
    }
    fn consume(&self, claim: Vec<Delivery>) {
        for delivery in claim {
            let _ = self.0.send(());
            delivery.ticket.give_back();
        }
    }
    fn give_back(&self) {}
    fn abort(&self) {}
}

async fn unwilling(db: &TestDb) -> (WorkerHandle, UnboundedReceiver<()>) {
    let (given, returns) = unbounded_channel();
    let worker = worker(&db.pool(2).unwrap()).consumer("default", Unwilling(given));
    (worker.start().await.unwrap(), returns)
}

/// Returns the time until it came this many times.
async fn time_of(returns: &mut UnboundedReceiver<()>, times: usize) -> Duration {
    returns.recv().await.unwrap();
    let first = Instant::now();
    for _ in 1..times {
        let next = tokio::time::timeout(SOON, returns.recv()).await;
        next.expect("it comes again").unwrap();
    }
    first.elapsed()
}

/// Six returns, with pauses of at least 50, 100, 200 and 400 ms between them.
const SIX_TIMES: Duration = Duration::from_millis(750);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_released_jobs_back_off_and_are_logged() {
    let log = Log::for_process();
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    enqueue(&client, &job("given.back")).await.unwrap();
    let (worker, mut returns) = unwilling(&db).await;
    let took = time_of(&mut returns, 6).await;
    assert!(took >= SIX_TIMES, "six times in {took:?}");
    worker.stop().await.unwrap();
    let logged = log.lines(&["is returned repeatedly", "given.back"]);
    assert_eq!(logged.len(), 1, "{logged:?}");
    let counted = number(&client, "SELECT max(attempt) FROM posthaste.job").await;
    assert_eq!(counted, 0, "no attempt is counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_repeatedly_snoozed_until_now_back_off_and_are_logged() -> TestResult {
    let log = Log::for_process();
    let (db, client) = connected(PgVersion::any()).await?;
    enqueue(&client, &job("snoozed")).await?;
    let (ran, mut runs) = unbounded_channel();
    let worker = worker(&db.pool(2)?)
        .queue_config(quick_queue())
        .handler("*", move |_, _| {
            let _ = ran.send(());
            let until = Timestamp::now();
            async move { Ok(Outcome::Snooze { until }) }
        })
        .start()
        .await?;
    let took = time_of(&mut runs, 6).await;
    assert!(took >= SIX_TIMES, "six times in {took:?}");
    worker.stop().await?;
    let logged = log.lines(&["is returned repeatedly", "snoozed"]);
    assert_eq!(logged.len(), 1, "{logged:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_released_quarantined_jobs_run_less_often() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    for step in [
        "INSERT INTO posthaste.job (name) VALUES ('quarantined')",
        "INSERT INTO posthaste.worker (name) VALUES ('dying')",
        "SELECT posthaste.claim('default', '{0}', max(id), gen_random_uuid(), 10, 1000000) \
         FROM posthaste.worker",
        "SELECT posthaste.rescue(min(id), 0) FROM posthaste.worker",
    ] {
        client.run(step).await.unwrap();
    }
    let (worker, mut returns) = unwilling(&db).await;
    let took = time_of(&mut returns, 5).await;
    // Two returns in each turn, and pauses of one and two seconds between the turns.
    assert!(took >= Duration::from_secs(3), "five times in {took:?}");
    worker.stop().await.unwrap();
}
