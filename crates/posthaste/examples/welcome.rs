//! README's example: an account and its welcome are committed together, and a worker in the same process does the work.
//!
//! `DATABASE_URL=postgres://… cargo run --example welcome`; Ctrl-C ends it.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use deadpool_postgres::{Manager, Pool};
use posthaste::{NewJob, Outcome, Worker};
use serde_json::{Value, json};

const ACCOUNT: &str = "CREATE TABLE IF NOT EXISTS account (name text)";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(url.parse()?, tokio_postgres::NoTls)).build()?;
    let mut client = pool.get().await?;
    posthaste::migrate(&mut client).await?;
    client.batch_execute(ACCOUNT).await?;

    let tx = client.transaction().await?;
    tx.execute("INSERT INTO account VALUES ('Ada')", &[])
        .await?;
    let job = NewJob::new("mail.welcome", &json!({ "to": "Ada" }))?;
    posthaste::enqueue(&tx, &job).await?;
    tx.commit().await?; // the account and its job, or neither

    let worker = Worker::builder(pool)
        .queue("default", 16) // so many jobs at once
        .handler("mail.welcome", |_context, job| async move {
            let mail: Value = job.kwargs()?;
            println!("welcome, {}", mail["to"]);
            Ok(Outcome::Done)
        });
    worker.start().await?.run_until_signal().await?;
    Ok(())
}
