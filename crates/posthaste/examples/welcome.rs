//! README's example, with what is around it: an account and its welcome are committed together, and
//! a worker in the same process does the work.
//!
//! `DATABASE_URL=postgres://… cargo run -p posthaste --example welcome`; Ctrl-C ends it.
#![expect(clippy::print_stdout, reason = "an example talks to people")]

use deadpool_postgres::{Client, Manager, Pool};
use serde::{Deserialize, Serialize};

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
    let account = "SELECT pg_advisory_xact_lock(hashtext('account'));
                   CREATE TABLE IF NOT EXISTS account (name text)";
    client.batch_execute(account).await?;
    sign_up(&mut client, "Ada").await?;
    drop(client);
    work(pool).await
}

// README shows what follows.
use posthaste::{Context, JobArgs, Worker};

#[derive(Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl JobArgs for Welcome {
    const NAME: &'static str = "mail.welcome";
}

async fn sign_up(client: &mut Client, name: &str) -> anyhow::Result<()> {
    let tx = client.transaction().await?;
    tx.execute("INSERT INTO account VALUES ($1)", &[&name])
        .await?;
    posthaste::enqueue(&tx, Welcome { to: name.into() }).await?;
    Ok(tx.commit().await?) // the account and its mail, or neither
}

async fn welcome(_context: Context, mail: Welcome) -> anyhow::Result<()> {
    println!("welcome, {}", mail.to); // an error would be tried again, after longer waits
    Ok(())
}

async fn work(pool: Pool) -> anyhow::Result<()> {
    let worker = Worker::builder(pool).queue("default", 16).job(welcome); // 16 jobs at once
    Ok(worker.start().await?.run_until_signal().await?)
}
