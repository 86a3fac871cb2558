//! A worker process: its handler behaves as the job requires, and records what it received and did.

mod clocked;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use deadpool_postgres::{Manager, Pool};
use jiff::Timestamp;
use posthaste::{
    Backoff, Config, Context, HandlerResult, Job, Outcome, QueueConfig, Worker, WorkerBuilder,
    WorkerHandle,
};
use serde_json::Value;
use tokio_postgres::NoTls;

use crate::bugs::Misbehavior;
use crate::history::log::Log;
use crate::history::{Acted, How, JobBehavior, Moment, now};
use crate::load::{JOB, QUEUES};
use clocked::{Ticks, time_there};

/// How long an unconfirmed job is held.
const AWAITED: Duration = Duration::from_millis(300);
/// How long a worker tries to reach its server when it starts.
const REACHED: Duration = Duration::from_secs(60);

/// Options of the worker process.
#[derive(Debug, Args)]
pub struct WorkerOptions {
    /// URL of the database
    #[arg(long)]
    pub url: String,
    /// File to which the history is written
    #[arg(long)]
    pub sink: PathBuf,
    /// File with the offset of the server's clock, if it has a separate one
    #[arg(long)]
    pub clock: Option<PathBuf>,
    /// Injected bug; see `bugs`
    #[arg(long, value_enum)]
    pub misbehavior: Option<Misbehavior>,
    /// Site of the process
    #[arg(long)]
    pub site: Option<String>,
}

/// Works until a signal stops it.
pub async fn work(options: WorkerOptions) -> anyhow::Result<()> {
    // Writes block until the log is read, and each job has several lines.
    tracing_subscriber::fmt()
        .with_env_filter("posthaste=debug")
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let pool = pool(&options.url)?;
    let ticks = Ticks::of(&options)?;
    let hand = Arc::new(Hand {
        sink: Log::open(&options.sink)?,
        pool: pool.clone(),
        misbehavior: options.misbehavior,
        clock: options.clock,
        site: options.site,
    });

    let worker = begin(|| build(&pool, &hand, ticks.as_ref())).await?;
    worker.run_until_signal().await.context("working")
}

/// Starts a worker process; retries while its server is unreachable.
pub(crate) async fn begin(build: impl Fn() -> WorkerBuilder) -> anyhow::Result<WorkerHandle> {
    let since = tokio::time::Instant::now();
    loop {
        match build().start().await {
            Ok(worker) => return Ok(worker),
            Err(error) if since.elapsed() > REACHED => return Err(error).context("beginning"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The connection pool of handlers.
pub(crate) fn pool(url: &str) -> anyhow::Result<Pool> {
    let mut config: tokio_postgres::Config = url.parse()?;
    config.connect_timeout(Duration::from_secs(5));
    Ok(Pool::builder(Manager::new(config, NoTls))
        .max_size(4)
        .build()?)
}

/// Short intervals, so that much happens in a round.
pub(crate) fn config(site: Option<&String>) -> Config {
    Config {
        poll_interval: Duration::from_millis(30),
        heartbeat_interval: Duration::from_millis(500),
        // Long compared with delays of heartbeats on a busy machine.
        rescue_after: Duration::from_secs(4),
        shutdown_grace: Duration::from_secs(5),
        maintenance_interval: Duration::from_millis(100),
        expire_interval: Duration::from_millis(500),
        // Small segments, so that several are rotated in a round.
        segment_bytes: 256 << 10,
        site: site.cloned(),
        ..Config::default()
    }
}

/// With a separate clock of the server, long enough that the omission of a back-off is visible.
pub(crate) fn backoff(is_clocked: bool) -> Backoff {
    let longer = if is_clocked { 20 } else { 1 };
    Backoff {
        base: Duration::from_millis(20 * longer),
        cap: Duration::from_millis(200).max(Duration::from_millis(40 * longer)),
    }
}

fn build(pool: &Pool, hand: &Arc<Hand>, ticks: Option<&Arc<Ticks>>) -> WorkerBuilder {
    let backoff = backoff(ticks.is_some());
    let mut builder = Worker::builder(pool.clone()).config(config(hand.site.as_ref()));
    for queue in QUEUES {
        builder = builder.queue_config(QueueConfig {
            backoff,
            ..QueueConfig::new(queue, 4)
        });
    }
    if let Some(ticks) = ticks {
        builder = Arc::clone(ticks).join(builder);
    }
    let hand = Arc::clone(hand);
    builder.handler(JOB, move |context, job| {
        let hand = Arc::clone(&hand);
        async move { hand.run(context, job).await }
    })
}

/// The shared state of handlers.
struct Hand {
    sink: Log,
    pool: Pool,
    misbehavior: Option<Misbehavior>,
    clock: Option<PathBuf>,
    site: Option<String>,
}

impl Hand {
    async fn run(self: Arc<Self>, context: Context, job: Arc<Job>) -> HandlerResult {
        let args: Value = job.kwargs()?;
        let key = args["key"].as_i64().ok_or("a job without a key")?;
        let behavior: JobBehavior = serde_json::from_value(args["behavior"].clone())?;
        let began = Acted::Began {
            key,
            id: job.id.0,
            delivery: context.delivery_id().to_string(),
            fence: self.fence(&context),
            // As the database counts: previous counted attempts.
            attempt: job.attempt - 1,
            args,
            at: now(),
        };
        let pause = Duration::from_millis(match fastrand::u32(0..40) {
            0 => fastrand::u64(100..300),
            1..10 => fastrand::u64(5..40),
            _ => fastrand::u64(0..3),
        });
        if self.misbehavior == Some(Misbehavior::AcknowledgesFirst) {
            tokio::spawn(async move {
                tokio::time::sleep(pause + Duration::from_millis(500)).await;
                let _ = self.sink.append(&began);
                let _ = self.ends(key, &context, How::Done);
            });
            return Ok(Outcome::Done);
        }
        self.sink.append(&began)?;
        tokio::time::sleep(pause).await;
        let (how, result) = self.act(key, behavior, &context, &job).await?;
        self.ends(key, &context, how)?;
        result
    }

    fn fence(&self, context: &Context) -> String {
        match self.misbehavior {
            Some(Misbehavior::SharesAFence) => "the same".into(),
            _ => format!("{:?}", context.fence()),
        }
    }

    fn ends(&self, key: i64, context: &Context, how: How) -> anyhow::Result<()> {
        self.sink.append(&Acted::Ended {
            key,
            fence: self.fence(context),
            how,
            at: now(),
        })
    }

    async fn act(
        &self,
        key: i64,
        behavior: JobBehavior,
        context: &Context,
        job: &Job,
    ) -> anyhow::Result<(How, HandlerResult)> {
        let again = (How::Again, Err("as was asked for".into()));
        Ok(match behavior {
            JobBehavior::Retry(times) if job.attempt <= times => {
                let after = Some(Duration::from_millis(fastrand::u64(0..100)));
                (How::Again, Ok(Outcome::Retry { after }))
            }
            JobBehavior::Fail(times) if job.attempt <= times => again,
            JobBehavior::Exhaust => again,
            JobBehavior::Snooze(until) if self.time_there()? < until => (How::Later, snooze(until)),
            JobBehavior::Await { confirmed } if job.attempt == 1 => {
                let is_confirmed = confirmed && self.confirm(context).await.is_ok();
                let how = match (is_confirmed, confirmed) {
                    (true, _) => How::Confirmed,
                    // The confirmation may still have been received.
                    (false, true) => How::Ambiguous,
                    (false, false) => How::Unconfirmed,
                };
                let until = Timestamp::from_microsecond(self.time_there()?)? + AWAITED;
                (how, Ok(Outcome::Await { until }))
            }
            JobBehavior::Complete => match self.complete(key, context).await {
                Ok(()) => (How::Done, Ok(Outcome::Done)),
                // Retried if it was not committed.
                Err(error) => (How::Ambiguous, Err(error.into())),
            },
            JobBehavior::Discard => {
                let reason = "as was asked for".into();
                (How::Discarded, Ok(Outcome::Discard { reason }))
            }
            _ => (How::Done, Ok(Outcome::Done)),
        })
    }

    fn time_there(&self) -> anyhow::Result<Moment> {
        time_there(self.clock.as_deref())
    }

    async fn confirm(&self, context: &Context) -> anyhow::Result<()> {
        let client = self.pool.get().await?;
        let confirm = "SELECT posthaste.confirm($1)";
        client.execute(confirm, &[&context.delivery_id()]).await?;
        Ok(())
    }

    async fn complete(&self, key: i64, context: &Context) -> anyhow::Result<()> {
        let mut client = self.pool.get().await?;
        let tx = client.transaction().await?;
        tx.execute("INSERT INTO effect (key) VALUES ($1)", &[&key])
            .await?;
        context.complete_in(&tx).await?;
        Ok(tx.commit().await?)
    }
}

fn snooze(until: Moment) -> HandlerResult {
    let until = Timestamp::from_microsecond(until)?;
    Ok(Outcome::Snooze { until })
}
