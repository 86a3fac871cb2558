//! A handler whose effect lies in the same database finishes its job in the transaction of the
//! effect: a worker that was taken for dead meanwhile changes nothing, so the balance below grows
//! by exactly one per job, however often a job is handed out.
//!
//! `DATABASE_URL=postgres://… cargo run -p posthaste --example complete_in`; it ends when its queue
//! is empty, and tells all jobs and coins since the first start.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste::{Context, HandlerResult, NewJob, Outcome, Worker};
use serde_json::json;

const QUEUE: &str = "complete_in";
const JOBS: usize = 100;

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
    let purse = "SELECT pg_advisory_xact_lock(hashtext('purse'));
         CREATE TABLE IF NOT EXISTS purse (jobs integer NOT NULL, coins integer NOT NULL);
         INSERT INTO purse SELECT 0, 0 WHERE NOT EXISTS (SELECT FROM purse)";
    client.batch_execute(purse).await?;

    let tx = client.transaction().await?;
    let more = "UPDATE purse SET jobs = jobs + $1";
    tx.execute(more, &[&(JOBS as i32)]).await?;
    let job = NewJob::new("coin.add", &json!({}))?.queue(QUEUE);
    posthaste::enqueue_many(&tx, &vec![job; JOBS]).await?;
    tx.commit().await?;

    let handlers = pool.clone();
    let worker = Worker::builder(pool)
        .queue(QUEUE, 8)
        .handler("coin.add", move |context, _job| {
            credit_purse(handlers.clone(), context)
        })
        .start()
        .await?;
    // One statement sees the purse as it is when nothing waits, whoever else is at work.
    let done = "SELECT jobs, coins FROM purse
         WHERE NOT EXISTS (SELECT FROM posthaste.job WHERE queue = $1)";
    let row = loop {
        match client.query_opt(done, &[&QUEUE]).await? {
            Some(row) => break row,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    worker.stop().await?;
    let (jobs, coins): (i32, i32) = (row.get("jobs"), row.get("coins"));
    println!("{jobs} jobs, {coins} coins");
    Ok(())
}

async fn credit_purse(pool: Pool, context: Context) -> HandlerResult {
    let mut client = pool.get().await?;
    let tx = client.transaction().await?;
    tx.execute("UPDATE purse SET coins = coins + 1", &[])
        .await?;
    // Fails, and with it the transaction, when this run of the job is no longer the one that
    // counts.
    context.complete_in(&tx).await?;
    tx.commit().await?;
    Ok(Outcome::Done)
}
