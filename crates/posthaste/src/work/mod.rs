//! 4a. Work: handlers in this process.

#[cfg(feature = "exec")]
pub(crate) mod exec;
pub(crate) mod handler;
#[cfg(feature = "http")]
pub(crate) mod http;
mod runner;
pub(crate) mod suspect;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, QueueConfig};
use crate::engine::{self, Engine, Parts, QueueState};
use crate::error::{Error, ErrorKind};
use crate::job::Job;
use crate::store::{self, migrate};
use handler::{Context, HandlerResult, Handlers};
use runner::Runner;

/// Works on queues with handlers.
///
/// The engine lives on a thread of its own and opens its own connections through the pool's manager (four, and one for the heartbeat); handlers run on the
/// runtime that [`WorkerBuilder::start`] is called on.
pub struct Worker;

impl Worker {
    /// Begins to describe a worker on this database.
    pub fn builder(pool: Pool) -> WorkerBuilder {
        WorkerBuilder {
            pool,
            config: Config::default(),
            queues: Vec::new(),
            handlers: Handlers::default(),
        }
    }
}

/// Describes a worker: its queues, its handlers, its settings.
pub struct WorkerBuilder {
    pool: Pool,
    config: Config,
    queues: Vec<QueueConfig>,
    handlers: Handlers,
}

impl WorkerBuilder {
    /// Works on this queue, so many jobs at once.
    pub fn queue(self, name: impl Into<String>, concurrency: usize) -> Self {
        self.queue_config(QueueConfig::new(name, concurrency))
    }

    /// Works on a queue with settings of its own.
    pub fn queue_config(mut self, queue: QueueConfig) -> Self {
        self.queues.push(queue);
        self
    }

    /// Runs jobs of this name with this handler. A name that ends in `*` stands for all that begin so; an exact name goes before a pattern, and a longer
    /// pattern before a shorter one, as in `posthaste.route`.
    pub fn handler<F, R>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Context, Arc<Job>) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.handlers.add(name.into(), handler);
        self
    }

    /// Replaces all settings of the process.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// How long running jobs may go on after a stop was asked for.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace = grace;
        self
    }

    /// Starts working. Fails at once when the settings make no sense, the database cannot be reached, or its schema is not migrated.
    pub async fn start(self) -> Result<WorkerHandle, Error> {
        self.check()?;
        let client = self
            .pool
            .get()
            .await
            .map_err(|error| ErrorKind::Connect(error.to_string()))?;
        migrate::require_current(&client).await?;
        let incarnation = store::incarnation(&client).await?;
        drop(client);
        let stop = CancellationToken::new();
        let handlers = Arc::new(self.handlers);
        let runtime = tokio::runtime::Handle::current();
        let queues = self.queues.into_iter().map(|queue| {
            let (name, backoff) = (queue.name.clone(), queue.backoff);
            let runner = Runner::start(
                queue,
                Arc::clone(&handlers),
                runtime.clone(),
                stop.clone(),
                incarnation,
            );
            Arc::new(QueueState::new(&name, backoff, Arc::new(runner)))
        });
        let parts = Parts {
            pool: self.pool.clone(),
            config: self.config,
            queues: queues.collect(),
            stop: stop.clone(),
        };
        let (engine, settled) = Engine::new(parts);
        let pool = self.pool;
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("posthaste-engine".into())
            .spawn(move || {
                // Nobody may be left to hear it.
                let _ = ended.send(engine::run(engine, settled, pool));
            })
            .map_err(|error| ErrorKind::Config(format!("cannot start a thread: {error}")))?;
        Ok(WorkerHandle { stop, end })
    }

    fn check(&self) -> Result<(), Error> {
        let problem = if self.queues.is_empty() {
            "a worker needs at least one queue"
        } else if self.handlers.is_empty() {
            "a worker needs at least one handler"
        } else if self.queues.iter().enumerate().any(|(at, queue)| {
            self.queues[..at]
                .iter()
                .any(|other| other.name == queue.name)
        }) {
            "a queue is named twice"
        } else if self.config.rescue_after < self.config.heartbeat_interval * 3 {
            "rescue_after must be at least three heartbeat intervals"
        } else {
            return Ok(());
        };
        Err(ErrorKind::Config(problem.into()).into())
    }
}

/// A worker at work. Dropping it asks it to stop, without waiting.
pub struct WorkerHandle {
    stop: CancellationToken,
    end: tokio::sync::oneshot::Receiver<Result<(), std::io::Error>>,
}

impl WorkerHandle {
    /// Stops in good order: no more claims, running jobs get the grace period, the rest is given back without burning an attempt.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        (&mut self.end)
            .await
            .map_err(|_| ErrorKind::Ended("its thread panicked".into()))?
            .map_err(|error| ErrorKind::Ended(error.to_string()).into())
    }

    /// Works until SIGTERM or SIGINT, then stops in good order. A second signal ends at once: what was running is rescued later.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        crate::shutdown::signal().await?;
        tokio::select! {
            stopped = self.stop() => stopped,
            again = crate::shutdown::signal() => again.and(Err(ErrorKind::Ended("a second signal came before all jobs were given back".into()).into())),
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
