//! A consumer of one's own takes whole claims, so it can do with one call what handlers would do job by job: here, one INSERT for all jobs
//! of a claim. What it could not begin is given back when the worker stops.
//!
//! `DATABASE_URL=postgres://… cargo run --example consumer`; it ends when its jobs are done.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste::{Consumer, Delivery, NewJob, Outcome, Worker};
use serde_json::json;
use tokio::sync::Notify;

const QUEUE: &str = "audit";
const JOBS: usize = 1_000;
/// The largest line of jobs, and so the largest INSERT.
const LINE: usize = 250;

/// Keeps what it is given until its task takes all of it.
#[derive(Default)]
struct Audit {
    line: Mutex<Vec<Delivery>>,
    arrived: Notify,
}

impl Consumer for Audit {
    fn capacity(&self) -> usize {
        let waiting = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        LINE - waiting.len().min(LINE)
    }

    fn consume(&self, claim: Vec<Delivery>) {
        let mut waiting = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(claim);
        self.arrived.notify_one();
    }

    fn give_back(&self) {
        let waiting = self.take();
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }

    fn abort(&self) {
        self.give_back();
    }
}

impl Audit {
    fn take(&self) -> Vec<Delivery> {
        std::mem::take(&mut *self.line.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// On the program's own runtime: the engine's thread only hands jobs over.
    async fn work(&self, pool: Pool) {
        loop {
            self.arrived.notified().await;
            let jobs = self.take();
            match write(&pool, &jobs).await {
                Ok(()) => jobs
                    .into_iter()
                    .for_each(|one| one.ticket.finish(Outcome::Done)),
                Err(error) => jobs
                    .into_iter()
                    .for_each(|one| one.ticket.fail(error.to_string())),
            }
        }
    }
}

async fn write(pool: &Pool, jobs: &[Delivery]) -> Result<(), Box<dyn std::error::Error>> {
    let entries: Vec<&str> = jobs.iter().map(|one| one.job.kwargs_json()).collect();
    let insert = "INSERT INTO audit SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING";
    pool.get().await?.execute(insert, &[&entries]).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(url.parse()?, tokio_postgres::NoTls)).build()?;
    let mut client = pool.get().await?;
    posthaste::migrate(&mut client).await?;
    client
        .batch_execute("DROP TABLE IF EXISTS audit; CREATE TABLE audit (entry text PRIMARY KEY)")
        .await?;

    let tx = client.transaction().await?;
    let job = |number| NewJob::new("audit.entry", &json!({ "number": number }));
    let jobs: Vec<NewJob> = (0..JOBS)
        .map(|number| Ok(job(number)?.queue(QUEUE)))
        .collect::<Result<_, posthaste::Error>>()?;
    posthaste::enqueue_many(&tx, &jobs).await?;
    tx.commit().await?;

    let audit = Arc::new(Audit::default());
    let (inner, writers) = (Arc::clone(&audit), pool.clone());
    let working = tokio::spawn(async move { inner.work(writers).await });
    let worker = Worker::builder(pool).consumer(QUEUE, audit).start().await?;
    let waiting = "SELECT count(*) FROM posthaste.job WHERE queue = $1";
    while client.query_one(waiting, &[&QUEUE]).await?.get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.stop().await?;
    working.abort();
    let entries = client.query_one("SELECT count(*) FROM audit", &[]).await?;
    println!("{JOBS} jobs, {} entries", entries.get::<_, i64>(0));
    Ok(())
}
