//! A worker with a handler that only reports its start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::posthaste::{Context, Job, Outcome, Worker, WorkerHandle};
use anyhow::{Context as _, Result};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::{Config, NoTls};

use super::Arguments;
use crate::claims::{LOGGED_SESSION, LOGGING_OPTIONS};
use crate::contestants::{CONNECTIONS, JOB_NAME, QUEUE};
use crate::database::Database;

/// The number of concurrent handlers; the library decides how many jobs a claim takes.
const CONCURRENCY: usize = 32;

/// The length of the arguments of every preloaded job as text, such as `{"n": 1000001}`.
const KWARGS_BYTES: i64 = 14;

/// The settings of a crew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// The largest number of preloaded jobs in a claim; `None` for the library's default.
    pub(crate) largest_claim: Option<i64>,
    /// The size at which a segment is followed by a new one; `None` for the library's default.
    pub(crate) segment_mebibytes: Option<i64>,
    /// Whether the server logs the duration of each of the crew's statements.
    pub(crate) logged: bool,
    /// Identifies the worker as leader; `None` for the library's default.
    pub(crate) name: Option<&'static str>,
    /// Whether it receives notifications.
    pub(crate) notify: bool,
    /// The number of queues that it works.
    pub(crate) queues: u32,
}

impl Manner {
    /// The fastest settings.
    pub(crate) fn fast() -> Self {
        Self {
            largest_claim: None,
            segment_mebibytes: None,
            logged: false,
            name: None,
            notify: true,
            queues: 1,
        }
    }

    /// The fastest settings with claims of at most `jobs` jobs.
    pub(crate) fn in_batches_of(jobs: i64) -> Self {
        Self {
            largest_claim: Some(jobs),
            ..Self::fast()
        }
    }

    /// Sets the size of segments.
    pub(crate) fn segments_of(self, mebibytes: i64) -> Self {
        Self {
            segment_mebibytes: Some(mebibytes),
            ..self
        }
    }

    /// Sets the name.
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    /// Polls without notifications.
    pub(crate) fn without_notify(self) -> Self {
        Self {
            notify: false,
            ..self
        }
    }

    /// Sets the number of queues.
    pub(crate) fn on(self, queues: u32) -> Self {
        Self { queues, ..self }
    }

    /// Logs durations in the server's log.
    pub(crate) fn logged(self) -> Self {
        Self {
            logged: true,
            ..self
        }
    }
}

/// A running worker with a handler that only reports its start.
pub(crate) struct Crew {
    handle: WorkerHandle,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    target: AtomicU64,
    reached: Notify,
}

impl Crew {
    /// Starts a worker; `started` is called with the number in each job's arguments.
    pub(crate) async fn start(
        database: &Database,
        manner: Manner,
        started: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<Self> {
        let started = move |job: &Job| {
            if let Ok(Arguments { n }) = job.kwargs() {
                started(n);
            }
        };
        Self::start_on(database, manner, started).await
    }

    /// Starts a worker that only counts: it does not even read arguments.
    pub(crate) async fn start_counting(database: &Database, manner: Manner) -> Result<Self> {
        Self::start_on(database, manner, |_| {}).await
    }

    async fn start_on(
        database: &Database,
        manner: Manner,
        started: impl Fn(&Job) + Send + Sync + 'static,
    ) -> Result<Self> {
        let progress = Arc::new(Progress {
            target: AtomicU64::new(u64::MAX),
            ..Progress::default()
        });
        let (counted, started) = (Arc::clone(&progress), Arc::new(started));
        let mut config = ::posthaste::Config::default();
        if let Some(jobs) = manner.largest_claim {
            // The library limits a claim by the bytes of its arguments, and all preloaded jobs have
            // the same.
            config.claim_bytes = jobs * KWARGS_BYTES;
        }
        if let Some(mebibytes) = manner.segment_mebibytes {
            config.segment_bytes = mebibytes << 20;
        }
        if let Some(name) = manner.name {
            config.name = name.to_owned();
        }
        let address = address(database, manner);
        let mut worker = Worker::builder(pool(address.clone())?)
            .config(config)
            .queue(QUEUE, CONCURRENCY)
            .handler(JOB_NAME, move |_: Context, job: Arc<Job>| {
                started(&job);
                counted.count();
                async { Ok(Outcome::Done) }
            });
        if manner.notify {
            worker = worker.notifier(address, NoTls);
        }
        for queue in 2..=manner.queues {
            worker = worker.queue(format!("queue {queue}"), CONCURRENCY);
        }
        Ok(Self {
            handle: worker.start().await?,
            progress,
        })
    }

    /// The number of started jobs.
    pub(crate) fn done(&self) -> u64 {
        self.progress.done.load(Ordering::Relaxed)
    }

    /// Waits until `jobs` jobs were started.
    pub(crate) async fn reach(&self, jobs: u64, limit: Duration) -> Result<()> {
        self.progress.target.store(jobs, Ordering::SeqCst);
        let reached = async {
            while self.done() < jobs {
                self.progress.reached.notified().await;
            }
        };
        timeout(limit, reached)
            .await
            .with_context(|| format!("{} of {jobs} jobs were worked", self.done()))
    }

    /// Stops after finishing and acknowledging its jobs.
    pub(crate) async fn stop(self) -> Result<()> {
        Ok(self.handle.stop().await?)
    }
}

impl Progress {
    fn count(&self) {
        if self.done.fetch_add(1, Ordering::SeqCst) + 1 == self.target.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }
}

/// The connection settings of a worker.
fn address(database: &Database, manner: Manner) -> Config {
    let mut config = database.config().clone();
    if manner.logged {
        config
            .application_name(LOGGED_SESSION)
            .options(LOGGING_OPTIONS);
    }
    config
}

/// The pool of a worker, which opens its own connections through the pool's manager.
pub(super) fn pool(config: Config) -> Result<Pool> {
    let manager = Manager::from_config(
        config,
        NoTls,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Ok(Pool::builder(manager).max_size(CONNECTIONS).build()?)
}
