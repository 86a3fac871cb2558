//! Whole claims: one INSERT for all jobs of a claim, where handlers would make one for each.
//!
//! `DATABASE_URL=postgres://… cargo run --example claims`; it ends when its jobs are done.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

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

/// Writes claim after claim until all jobs are done.
async fn work(mut claims: Claims, pool: &Pool) -> anyhow::Result<()> {
    let mut left = JOBS as usize;
    while left > 0
        && let Some(claim) = claims.next().await
    {
        let jobs = claim.jobs().len();
        match write(pool, &claim).await {
            Ok(()) => {
                claim.complete();
                left -= jobs;
            }
            Err(error) => claim.fail(error), // each of them is tried again
        }
    }
    Ok(())
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
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(url.parse()?, tokio_postgres::NoTls)).build()?;
    let mut client = pool.get().await?;
    posthaste::migrate(&mut client).await?;
    client
        .batch_execute("DROP TABLE IF EXISTS audit; CREATE TABLE audit (entry text PRIMARY KEY)")
        .await?;

    let tx = client.transaction().await?;
    posthaste::enqueue_many(&tx, (0..JOBS).map(|number| Entry { number })).await?;
    tx.commit().await?;

    let queue = QueueConfig::new(QUEUE, CLAIM);
    let (worker, claims) = Worker::builder(pool.clone()).claims(queue);
    let worker = worker.start().await?;
    work(claims, &pool).await?;
    worker.stop().await?;
    let entries = client.query_one("SELECT count(*) FROM audit", &[]).await?;
    println!("{JOBS} jobs, {} entries", entries.get::<_, i64>(0));
    Ok(())
}
