//! Mails that are ordered in a transaction, carried to an asynq queue by a relay, and sent by
//! workers: what may go wrong between them is written down, and found.
//!
//! ```text
//! order (your transaction) ──► posthaste ──relay──► asynq queue in Redis ──► worker ──► SMTP
//!         └─► mail_deliveries ◄── queued → sending → sent | failed | unknown ──┘   reconciler
//! ```
//!
//! `DATABASE_URL=… REDIS_URL=… SMTP_URL=… cargo run --features redis,smtp --example mail -- work`,
//! as often as you like, and once with `reconcile`; `order ADDRESS` orders a mail. The relay is
//! `posthaste relay` with `to = "asynq://…"`; without one the reconciler queues what waits for half
//! a minute.
#![expect(unreachable_pub, reason = "the parts of an example are for others")]

mod deliveries;
mod queue;
mod reconcile;
mod worker;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste_relay::Smtp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use deliveries::Deliveries;
use queue::{LEASE, Queue};
use reconcile::{Provider, Reconciler};
use worker::Worker;

/// A provider that cannot be asked.
struct Mute;

impl Provider for Mute {
    async fn has(&self, _id: Uuid) -> Option<bool> {
        None
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let setting = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let database = setting("DATABASE_URL")?;
    let pool = Pool::builder(Manager::new(database.parse()?, tokio_postgres::NoTls)).build()?;
    posthaste::migrate(&mut *pool.get().await?).await?;
    let deliveries = Deliveries::open(pool.clone()).await?;
    let queue = || async { Queue::open(&setting("REDIS_URL")?, "mail", LEASE).await };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["order", address] => {
            let mut client = pool.get().await?;
            let transaction = client.transaction().await?;
            Deliveries::order(&transaction, address, "Welcome", "Nice to have you here.\n").await?;
            transaction.commit().await?;
        }
        ["work"] => {
            let worker = Worker {
                queue: queue().await?,
                deliveries,
                smtp: Arc::new(Smtp::new(&setting("SMTP_URL")?)?.from("us@example.com")),
                time_limit: Duration::from_secs(300),
            };
            let stop = CancellationToken::new();
            let running = tokio::spawn({
                let stop = stop.clone();
                async move { worker.run(stop).await }
            });
            posthaste::signal().await?;
            stop.cancel();
            running.await?;
        }
        ["reconcile"] => {
            let reconciler = Reconciler {
                deliveries,
                queue: queue().await?,
                provider: Mute,
                patience: 30.0,
                resends_unknown: false,
                retries_failed: false,
            };
            match reconciler.run(&database).await {}
        }
        _ => return Err("order ADDRESS, work or reconcile".into()),
    }
    Ok(())
}
