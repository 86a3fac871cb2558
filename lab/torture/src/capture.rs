//! A capture process: two captures of one outbox.
//!
//! | capture | to | each row |
//! |---|---|---|
//! | `by_jobs` | jobs of a queue without workers | once |
//! | `direct` | Sidekiq's list in a Redis that persists what it acknowledges | once or more |
//!
//! While that Redis accepts nothing, rows become jobs of the queue `sent`, which a relay of this
//! process sends. First arrivals are in commit order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use futures_util::future::{BoxFuture, select_all};
use posthaste::{Backoff, Config, Database, Error, Worker};
use posthaste_capture::{Capture, Direct, Options, OutboxColumns, Source, TableName, Until};
use posthaste_relay::{Answer, Destination, Message, Relay, Sender, Sidekiq, UnsafeSetting};
use tokio::signal::unix::{SignalKind, signal};

use crate::bugs::Misbehavior;
use crate::worker::{begin, config, pool};

/// The queue of `by_jobs`, and the receiver's list of `direct`.
pub(crate) const CAPTURED: &str = "captured";
/// The queue of events that could not be sent directly.
const SENT: &str = "sent";
/// The names of the captures.
pub(crate) const BY_JOBS: &str = "by_jobs";
pub(crate) const DIRECT: &str = "direct";
/// The timeout for an answer of Redis.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Without an accepted message for this long, events become jobs.
const SPILL_AFTER: Duration = Duration::from_secs(1);
/// Time between two duplicate jobs of a capture that writes jobs twice.
const TWICE: Duration = Duration::from_millis(300);

/// Options of the capture process.
#[derive(Debug, Args)]
pub struct CaptureOptions {
    /// The database.
    #[arg(long)]
    pub url: String,
    /// The Redis that receives what is sent directly; without one nothing is.
    #[arg(long)]
    pub redis: Option<String>,
    /// A bad habit; see `bugs`.
    #[arg(long, value_enum)]
    pub misbehavior: Option<Misbehavior>,
    /// The site that it belongs to.
    #[arg(long)]
    pub site: Option<String>,
    /// The slots fail over.
    #[arg(long)]
    pub failover: bool,
}

/// Captures until a signal stops it.
pub async fn capture(options: CaptureOptions) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter("posthaste=info,posthaste_capture=debug")
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let mut terminated = signal(SignalKind::terminate())?;
    let database = posthaste::connect(&options.url)?;
    let worker = match &options.redis {
        None => None,
        Some(redis) => {
            let relay = relay(redis)?.start().await?;
            let pool = pool(&options.url)?;
            // The workers would miss a leader that is killed with this process.
            let config = Config {
                maintenance: false,
                ..config(options.site.as_ref())
            };
            let build = || {
                let worker = Worker::builder(pool.clone()).config(config.clone());
                worker.consumer(SENT, relay.clone())
            };
            Some(begin(build).await?)
        }
    };
    let mut captures = Vec::new();
    let described = captures_of(
        options.redis.as_deref(),
        options.misbehavior,
        options.failover,
    )?;
    for capture in described {
        captures.push(capture.start(database.clone(), Until::Stopped)?);
    }
    if options.misbehavior == Some(Misbehavior::WritesAJobTwice) {
        tokio::spawn(write_twice(options.url.clone()));
    }
    let ended = select_all(captures.iter_mut().map(|one| Box::pin(one.ended())));
    tokio::select! {
        (ended, _, _) = ended => bail!("a capture has ended by itself: {ended:?}"),
        _ = terminated.recv() => {}
    }
    for running in &mut captures {
        running.stop();
        running.ended().await?;
    }
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    Ok(())
}

/// The captures of a round; without a Redis, none sends directly.
pub(crate) fn captures_of(
    redis: Option<&str>,
    misbehavior: Option<Misbehavior>,
    fails_over: bool,
) -> anyhow::Result<Vec<Capture>> {
    let mut all = vec![described(BY_JOBS, CAPTURED, None)?];
    if let Some(redis) = redis {
        let destination = Spoiled {
            inner: Arc::new(Sidekiq::new(redis)?.queue(CAPTURED)),
            misbehavior,
        };
        let mut direct = Direct::new(Sender::to(SENT, destination).time_limit(TIME_LIMIT));
        direct.spill_after_time = Some(SPILL_AFTER);
        all.push(described(DIRECT, SENT, Some(direct))?);
    }
    for capture in &mut all {
        capture.options.failover = Some(fails_over);
    }
    Ok(all)
}

fn described(name: &str, queue: &str, direct: Option<Direct>) -> anyhow::Result<Capture> {
    Ok(Capture {
        name: name.into(),
        queue: queue.into(),
        direct,
        source: Source::Outbox {
            table: TableName::read("public.outbox").map_err(anyhow::Error::msg)?,
            columns: OutboxColumns::default(),
        },
        slot: format!("posthaste_{name}"),
        server: None,
        options: Options::default(),
    })
}

fn relay(redis: &str) -> anyhow::Result<posthaste_relay::RelayBuilder> {
    let backoff = Backoff {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(200),
    };
    let relay = Relay::to(Sidekiq::new(redis)?.queue(CAPTURED)).ordered(true);
    Ok(relay.backoff(backoff).time_limit(TIME_LIMIT))
}

/// Duplicates the newest job periodically.
async fn write_twice(url: String) -> anyhow::Result<()> {
    let twice = "SELECT posthaste.enqueue(name, kwargs, queue => queue) FROM posthaste.job
                  WHERE queue = $1 ORDER BY id DESC LIMIT 1";
    let pool = pool(&url)?;
    loop {
        tokio::time::sleep(TWICE).await;
        let client = pool.get().await?;
        client.execute(twice, &[&CAPTURED]).await?;
    }
}

/// A destination that may receive fewer events than there are, or in another order.
struct Spoiled {
    inner: Arc<Sidekiq>,
    misbehavior: Option<Misbehavior>,
}

impl Destination for Spoiled {
    fn label(&self) -> String {
        self.inner.label()
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            match self.misbehavior {
                Some(Misbehavior::LosesAnEvent) if fastrand::u32(..5) == 0 => {
                    let mut answers = self.inner.send(&batch[1..]).await;
                    answers.insert(0, Answer::Accepted);
                    answers
                }
                Some(Misbehavior::SwapsEvents) => {
                    let turned: Vec<Message> = batch.iter().rev().cloned().collect();
                    let mut answers = self.inner.send(&turned).await;
                    answers.reverse();
                    answers
                }
                _ => self.inner.send(batch).await,
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.inner.probe()
    }

    fn unsafe_settings(
        &self,
        longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        self.inner.unsafe_settings(longest_outage)
    }
}

/// Installs the captures of a round.
pub(crate) async fn install(
    url: &str,
    redis: Option<&str>,
    fails_over: bool,
) -> anyhow::Result<()> {
    let database = posthaste::connect(url)?;
    for capture in captures_of(redis, None, fails_over)? {
        capture.install(&database).await?;
    }
    Ok(())
}

/// Begins all captures again on a server that lacks their slots, as an operator does. The gaps are
/// recorded.
pub(crate) async fn begin_again(url: &str, redis: Option<&str>) -> anyhow::Result<()> {
    let database: Database = posthaste::connect(url)?;
    for capture in captures_of(redis, None, false)? {
        capture.begin(&database).await?;
    }
    Ok(())
}
