//! Jobs that take some time, and a worker that can end as if its process was killed.

use std::sync::Arc;
use std::time::Duration;

use ::posthaste::__private::holders;
use ::posthaste::{Context, Job, NewJob, Outcome, Worker, WorkerHandle, enqueue_many};
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use super::crew::pool;
use crate::claims::{LOGGED_SESSION, LOGGING_OPTIONS};
use crate::contestants::{JOB_NAME, QUEUE};
use crate::database::Database;

/// Arguments of a paced job.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Arguments {
    n: u64,
    #[serde(default)]
    pad: String,
}

/// The duration of jobs, and the receiver of their events.
pub(crate) trait Pace: Send + Sync + 'static {
    /// Job `number` begins; returns how long it takes.
    fn start(&self, number: u64) -> Duration;
    /// Job `number` has ended.
    fn finish(&self, number: u64);
}

/// A worker in a separate runtime.
pub(crate) struct PacedWorker {
    handle: WorkerHandle,
    runtime: Runtime,
}

impl PacedWorker {
    /// Starts a worker for this many jobs at once. A dead worker is detected after `rescue`.
    pub(crate) async fn start(
        database: &Database,
        concurrency: usize,
        rescue: Duration,
        pace: Arc<dyn Pace>,
    ) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let mut address = database.config().clone();
        address
            .application_name(LOGGED_SESSION)
            .options(LOGGING_OPTIONS);
        let mut config = ::posthaste::Config::default();
        config.heartbeat_interval = config.heartbeat_interval.min(rescue / 3);
        config.rescue_after = rescue;
        let started = runtime.spawn(async move {
            let worker = Worker::builder(pool(address.clone())?)
                .config(config)
                .queue(QUEUE, concurrency)
                .handler(JOB_NAME, move |_: Context, job: Arc<Job>| {
                    let pace = Arc::clone(&pace);
                    async move {
                        let Arguments { n, .. } = job.kwargs()?;
                        tokio::time::sleep(pace.start(n)).await;
                        pace.finish(n);
                        Ok(Outcome::Done)
                    }
                })
                .notifier(address, NoTls);
            anyhow::Ok(worker.start().await?)
        });
        let handle = started.await.context("the worker did not start")??;
        Ok(Self { handle, runtime })
    }

    /// Stops after finishing its jobs.
    pub(crate) async fn stop(self) -> Result<()> {
        let stopped = self.handle.stop().await;
        self.runtime.shutdown_background();
        Ok(stopped?)
    }

    /// Ends it at once: its jobs and its liveness stop together, as those of a killed process do.
    #[cfg(test)]
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// Inserts one job per number into an open transaction.
pub(crate) async fn insert(client: &Client, numbers: &[u64], pad: &str) -> Result<()> {
    let jobs = numbers.iter().map(|&n| {
        let pad = pad.to_owned();
        NewJob::new(JOB_NAME, &Arguments { n, pad })
    });
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    enqueue_many(client, &jobs).await?;
    Ok(())
}

/// The age of the oldest holder of the horizon: seconds, and transactions.
pub(crate) async fn oldest_holder(client: &Client) -> Result<(f64, i64)> {
    let all = holders(client).await?;
    let seconds = all.iter().filter_map(|holder| holder.seconds);
    let transactions = all.iter().filter_map(|holder| holder.transactions);
    Ok((
        seconds.fold(0.0, f64::max),
        transactions.max().unwrap_or_default(),
    ))
}
