//! Whole claims: one INSERT for all jobs of a claim, where handlers would make one for each.
//!
//! `DATABASE_URL=postgres://… cargo run -p posthaste --example claims`; it ends when its queue is
//! empty.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste::{Claim, Claims, JobArgs, QueueConfig, Worker};
use serde::Serialize;

const QUEUE: &str = "audit";
const JOBS: u32 = 1_000;
/// The largest claim, and so the largest INSERT.
const CLAIM: usize = 250;

#[derive(Serialize)]
struct Entry {
    number: u32,
}

impl JobArgs for Entry {
    const NAME: &'static str = "audit.entry";

    fn options(&self, job: posthaste::NewJob) -> posthaste::NewJob {
        job.queue(QUEUE)
    }
}

/// Writes claim after claim until the worker stops.
async fn work(mut claims: Claims, pool: Pool) {
    while let Some(claim) = claims.next().await {
        match write(&pool, &claim).await {
            Ok(()) => claim.complete(),
            Err(error) => claim.fail(error), // each of them is tried again
        }
    }
}

async fn write(pool: &Pool, claim: &Claim) -> anyhow::Result<()> {
    let entries: Vec<&str> = claim.jobs().map(|job| job.kwargs_json()).collect();
    // A claim may come twice: the second time nothing is left to insert.
    let insert = "INSERT INTO audit SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING";
    pool.get().await?.execute(insert, &[&entries]).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init(); // what the worker warns of
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(url.parse()?, tokio_postgres::NoTls)).build()?;
    let mut client = pool.get().await?;
    posthaste::migrate(&mut client).await?;
    // Programs that start at once make the table one after the other.
    let audit = "SELECT pg_advisory_xact_lock(hashtext('audit'));
                 CREATE TABLE IF NOT EXISTS audit (entry text PRIMARY KEY)";
    client.batch_execute(audit).await?;

    let tx = client.transaction().await?;
    posthaste::enqueue_many(&tx, (0..JOBS).map(|number| Entry { number })).await?;
    tx.commit().await?;

    let queue = QueueConfig::new(QUEUE, CLAIM);
    let (worker, claims) = Worker::builder(pool.clone()).claims(queue);
    let worker = worker.start().await?;
    let working = tokio::spawn(work(claims, pool));
    let waiting = "SELECT count(*) FROM posthaste.job WHERE queue = $1";
    while client.query_one(waiting, &[&QUEUE]).await?.get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.stop().await?;
    working.await?;
    let entries = client.query_one("SELECT count(*) FROM audit", &[]).await?;
    println!("{JOBS} jobs, {} entries", entries.get::<_, i64>(0));
    Ok(())
}
