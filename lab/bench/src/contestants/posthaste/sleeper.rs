//! A worker whose jobs take a fixed time, on one queue or several.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::posthaste::{Context, Job, Outcome, Worker, WorkerHandle};
use anyhow::Result;
use tokio_postgres::NoTls;

use super::crew::pool;
use super::statements;
use crate::contestants::JOB_NAME;
use crate::database::Database;

/// A running worker.
pub(crate) struct Sleeper {
    handle: WorkerHandle,
    finished: Arc<AtomicU64>,
}

impl Sleeper {
    /// Starts a worker that runs at most `slots` jobs of each queue at once.
    pub(crate) async fn start(
        database: &Database,
        slots: usize,
        takes: Duration,
        queues: u32,
    ) -> Result<Self> {
        let finished = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&finished);
        let address = database.config().clone();
        let mut worker = Worker::builder(pool(address.clone())?)
            .handler(JOB_NAME, move |_: Context, _: Arc<Job>| {
                let counter = Arc::clone(&counter);
                async move {
                    tokio::time::sleep(takes).await;
                    counter.fetch_add(1, Ordering::Relaxed);
                    Ok(Outcome::Done)
                }
            })
            .notifier(address, NoTls);
        for queue in 0..queues {
            worker = worker.queue(name(queue), slots);
        }
        Ok(Self {
            handle: worker.start().await?,
            finished,
        })
    }

    /// The number of finished jobs.
    pub(crate) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Relaxed)
    }

    /// Stops after finishing its jobs.
    pub(crate) async fn stop(self) -> Result<()> {
        Ok(self.handle.stop().await?)
    }
}

/// Enqueues `jobs` jobs into each of the first queues.
pub(crate) async fn preload_queues(database: &Database, jobs: u64, queues: u32) -> Result<()> {
    let client = database.connect().await?;
    let preload = statements();
    let preload = preload.get("preload_queue")?;
    for queue in 0..queues {
        let jobs = i64::try_from(jobs)?;
        client.execute(preload, &[&jobs, &name(queue)]).await?;
    }
    Ok(())
}

fn name(queue: u32) -> String {
    format!("queue {queue}")
}
