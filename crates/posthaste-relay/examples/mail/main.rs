//! Mails that are ordered in a transaction, sent to an asynq queue by a relay, and mailed by
//! workers. Each failure between them is recorded and found.
//!
//! ```text
//! order (your transaction) ──► posthaste ──relay──► asynq queue in Redis ──► worker ──► SMTP
//!         └─► mail_deliveries ◄── queued → sending → sent | failed | unknown ──┘   reconciler
//! ```
//!
//! `DATABASE_URL=… REDIS_URL=… SMTP_URL=… cargo run -p posthaste-relay --features redis,smtp
//! --example mail -- work`, in any number of processes, and once with `reconcile`; `order ADDRESS`
//! orders a mail and prints its id. `unknown` lists the mails of which it is unknown whether they
//! were sent, and `resolve ID sent` or `resolve ID queued` records the outcome that you found.
//! MAIL_FROM is the sender.
//!
//! The relay is `posthaste relay run --config crates/posthaste-relay/examples/mail/posthaste.toml`:
//!
//! ```toml
//! [route.mail]
//! queue = "mail"
//! to = "asynq://127.0.0.1:6379/0"
//! receiver_queue = "mail"
//! ```
//!
//! Without a relay the reconciler queues mails that have waited for half a minute. A task that any
//! asynq worker completes counts as sent: only workers that send mails may run the queue `mail`.
#![expect(unreachable_pub, reason = "the parts of an example are for others")]
#![expect(clippy::print_stdout, reason = "an example talks to people")]

mod connection;
mod deliveries;
mod queue;
mod reconcile;
mod settings;
mod task;
mod worker;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use posthaste_relay::{Destination, Smtp};
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use uuid::Uuid;

use deliveries::Deliveries;
use queue::{LEASE, MAIL, Queue};
use reconcile::{POLL_INTERVAL, RESENDS, Reconciler, UnqueryableProvider};
use worker::{OUTAGE, RETRIES, Worker};

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "say: work, reconcile, order ADDRESS, unknown, or resolve ID sent|queued";

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["work"] => work().await,
        ["reconcile"] => reconcile().await,
        ["order", address] => order(address).await,
        ["unknown"] => unknown().await,
        ["resolve", id, to @ ("sent" | "queued")] => resolve(id, to).await,
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", in_full(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn work() -> Result<(), Failure> {
    let [database, redis, smtp] = read(["DATABASE_URL", "REDIS_URL", "SMTP_URL"])?;
    let worker = Worker {
        queue: Queue::open(&redis, MAIL, LEASE)?,
        deliveries: open(&database).await?.1,
        smtp: Arc::new(Smtp::new(&smtp)?.from(sender())),
        time_limit: Duration::from_secs(300),
        retries: RETRIES,
        outage: OUTAGE,
    };
    let (signal, stop) = (posthaste::signal(), CancellationToken::new());
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { worker.run(stop).await }
    });
    signal.await?;
    stop.cancel();
    Ok(running.await?)
}

async fn reconcile() -> Result<(), Failure> {
    let [database, redis] = read(["DATABASE_URL", "REDIS_URL"])?;
    let (_, deliveries) = open(&database).await?;
    let reconciler = reconciler(deliveries, &redis)?;
    tokio::select! {
        never = reconciler.run(&database) => match never {},
        asked = posthaste::signal() => Ok(asked?),
    }
}

async fn order(address: &str) -> Result<(), Failure> {
    let (subject, body) = ("Welcome", "Nice to have you here.\n");
    // A mail that a worker would reject is not ordered.
    let mail = worker::mail(Uuid::nil(), address, subject, body);
    let smtp = Smtp::new("smtp://nowhere")?.from(sender());
    if let Some(reason) = smtp.rejection_reason(&mail) {
        return Err(format!("nothing is ordered: {reason}").into());
    }
    let [database] = read(["DATABASE_URL"])?;
    let (pool, _) = open(&database).await?;
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    let id = Deliveries::order(&transaction, address, subject, body).await?;
    transaction.commit().await?;
    println!("{id}");
    Ok(())
}

async fn unknown() -> Result<(), Failure> {
    let [database] = read(["DATABASE_URL"])?;
    let (_, deliveries) = open(&database).await?;
    for mail in deliveries.unknown().await? {
        let (id, to, attempt, since) = (mail.id, mail.recipient, mail.attempt, mail.since);
        println!(
            "{id}  {since:.0}  attempt {attempt}  to {to}: {}",
            mail.reason
        );
    }
    Ok(())
}

async fn resolve(id: &str, to: &str) -> Result<(), Failure> {
    let id: Uuid = id.parse().map_err(|_| format!("{id:?} is not an id"))?;
    let [database, redis] = read(["DATABASE_URL", "REDIS_URL"])?;
    let (_, deliveries) = open(&database).await?;
    let state = deliveries.state(id).await?;
    let is_moved = match (state.as_deref(), to) {
        (Some("unknown"), "sent") => {
            let reason = "somebody found out";
            deliveries.resolve(id, "unknown", to, reason).await?
        }
        (Some("unknown"), _) => {
            let reconciler = reconciler(deliveries.clone(), &redis)?;
            reconciler.queue_again(id, "unknown").await?
        }
        _ => false,
    };
    match (is_moved, state) {
        (true, _) => println!("{id}: {}", deliveries.state(id).await?.unwrap_or_default()),
        (false, Some(state)) => return Err(format!("{id} is {state}, and stays it").into()),
        (false, None) => return Err(format!("nobody has ordered {id}").into()),
    }
    Ok(())
}

fn reconciler(
    deliveries: Deliveries,
    redis: &str,
) -> Result<Reconciler<UnqueryableProvider>, Failure> {
    Ok(Reconciler {
        deliveries,
        queue: Queue::open(redis, MAIL, LEASE)?,
        provider: UnqueryableProvider,
        poll_interval: POLL_INTERVAL,
        patience: 30.0,
        resends: RESENDS,
        resends_unknown: false,
        retries_failed: false,
    })
}

/// Opens the database, with posthaste's schema and the example's table.
async fn open(url: &str) -> Result<(Pool, Deliveries), Failure> {
    let pool = Pool::builder(Manager::new(url.parse()?, NoTls)).build()?;
    let opened = async {
        posthaste::migrate(&mut *pool.get().await?).await?;
        Deliveries::open(pool.clone()).await
    };
    match opened.await {
        Ok(deliveries) => Ok((pool, deliveries)),
        Err(error) => Err(format!("the database of DATABASE_URL: {}", in_full(&*error)).into()),
    }
}

fn read<const N: usize>(names: [&str; N]) -> Result<[String; N], String> {
    settings::read(names, |name| std::env::var(name).ok())
}

fn sender() -> String {
    std::env::var("MAIL_FROM").unwrap_or_else(|_| "us@example.com".into())
}

/// Returns an error with all its causes, each once.
fn in_full(error: &dyn Error) -> String {
    let (mut text, mut deepest) = (error.to_string(), error);
    while let Some(cause) = deepest.source() {
        deepest = cause;
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
