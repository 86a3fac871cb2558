//! The sync in a separate process, as in production.

use std::time::Duration;

use anyhow::Result;
use posthaste::Worker;
use posthaste_sync::{IndexSync, Table};

use super::{NAME, PERIOD, index};
use crate::process;

pub async fn run() -> Result<()> {
    let period = Duration::from_millis(std::env::var(PERIOD)?.parse()?);
    let (pool, index) = (process::pool()?, index()?);
    // The sync's first check would create it too; the service may not begin before.
    index.open().await?;
    let table = Table::new(pool.clone(), NAME);
    let sync = IndexSync::builder(table, index).period(period).start()?;
    let worker = Worker::builder(pool)
        .consumer(posthaste_sync::queue(NAME), sync)
        .start()
        .await?;
    println!("ready");
    Ok(worker.run_until_signal().await?)
}
