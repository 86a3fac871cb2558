//! A handler whose effect lies in the same database finishes its job in the transaction of the
//! effect: a worker that was taken for dead meanwhile changes nothing, so the balance below grows
//! by exactly one per job, however often a job is handed out.
//!
//! `DATABASE_URL=postgres://… cargo run --example complete_in`; it ends when its jobs are done.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste::{Context, HandlerResult, NewJob, Outcome, Worker};
use serde_json::json;

const QUEUE: &str = "complete_in";
const JOBS: usize = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(url.parse()?, tokio_postgres::NoTls)).build()?;
    let mut client = pool.get().await?;
    posthaste::migrate(&mut client).await?;
    client
        .batch_execute("DROP TABLE IF EXISTS purse; CREATE TABLE purse AS SELECT 0 AS coins")
        .await?;

    let tx = client.transaction().await?;
    let job = NewJob::new("coin.add", &json!({}))?.queue(QUEUE);
    posthaste::enqueue_many(&tx, &vec![job; JOBS]).await?;
    tx.commit().await?;

    let handlers = pool.clone();
    let worker = Worker::builder(pool)
        .queue(QUEUE, 8)
        .handler("coin.add", move |context, _job| {
            add_coin(handlers.clone(), context)
        })
        .start()
        .await?;
    let waiting = "SELECT count(*) FROM posthaste.job WHERE queue = $1";
    while client.query_one(waiting, &[&QUEUE]).await?.get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.stop().await?;
    let coins: i32 = client
        .query_one("SELECT coins FROM purse", &[])
        .await?
        .get(0);
    println!("{JOBS} jobs, {coins} coins");
    Ok(())
}

async fn add_coin(pool: Pool, context: Context) -> HandlerResult {
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
