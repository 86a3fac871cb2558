//! 4a. Work: the worker of a process, with handlers and other consumers.

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
use serde::de::DeserializeOwned;
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_util::sync::CancellationToken;

use crate::bell::{self, Listen};
use crate::config::{self, Config, QueueConfig};
use crate::consumer::Consumer;
use crate::engine::{self, Engine, Parts, QueueState};
use crate::error::{Error, ErrorKind};
use crate::job::Job;
use crate::periodic::Periodic;
use crate::shutdown::Signals;
use crate::store::{self, migrate};
use handler::{Context, HandlerResult, Handlers};
use runner::Runner;

/// Works on queues, with handlers or with consumers of your own.
///
/// The engine lives on a thread of its own and opens its own connections through the pool's manager (five, one for the heartbeat, one for the [bell](WorkerBuilder::bell), and one for its [relays](crate::relay)); handlers run on the
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
            consumers: Vec::new(),
            periodic: Vec::new(),
            listen: None,
        }
    }
}

/// Describes a worker: its queues, its handlers, its settings.
pub struct WorkerBuilder {
    pool: Pool,
    config: Config,
    queues: Vec<QueueConfig>,
    handlers: Handlers,
    consumers: Vec<(String, Arc<dyn Consumer>)>,
    periodic: Vec<Periodic>,
    listen: Option<Listen>,
}

impl WorkerBuilder {
    /// Works on this queue with the handlers, so many jobs at once.
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

    /// As [`handler`](Self::handler), with the job's arguments read as `T`. Arguments that are no `T` never reach the handler: they burn an attempt,
    /// and the error kept with the job names the argument. What else there is to know of the job, [`Context::job`] knows.
    ///
    /// ```
    /// # use posthaste::{Outcome, WorkerBuilder};
    /// #[derive(serde::Deserialize)]
    /// struct Welcome {
    ///     to: String,
    /// }
    /// # fn with_welcome(builder: WorkerBuilder) -> WorkerBuilder {
    /// builder.handler_of("mail.welcome", |_context, mail: Welcome| async move {
    ///     println!("welcome, {}", mail.to);
    ///     Ok(Outcome::Done)
    /// })
    /// # }
    /// ```
    pub fn handler_of<T, F, R>(self, name: impl Into<String>, handler: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(Context, T) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        self.handler(name, move |context, job| {
            let run = job.arguments().map(|arguments| handler(context, arguments));
            async move { run?.await }
        })
    }

    /// Gives the jobs of this queue to a consumer instead of handlers: whole claims, as many jobs at once as it says. See [`Consumer`].
    pub fn consumer(mut self, queue: impl Into<String>, consumer: impl Consumer) -> Self {
        self.consumers.push((queue.into(), Arc::new(consumer)));
        self
    }

    /// Sees to it that this job comes by its schedule, from now on and after this worker has ended: it is written into `posthaste.periodic`, where one
    /// of the same name is replaced, and stays until somebody deletes it there. Exactly one job is enqueued for each tick, whichever worker leads.
    pub fn periodic(mut self, periodic: Periodic) -> Self {
        self.periodic.push(periodic);
        self
    }

    /// Wakes the worker as soon as something is enqueued for it, over a connection of its own that listens: jobs start within a round trip or two,
    /// and a worker without jobs costs next to nothing. Without this, or while that connection is lost, it looks by itself, ten times a second
    /// unless [`Config::poll_interval`] says otherwise.
    ///
    /// It takes what the pool was made from, because the pool does not tell. Not the address of a pooler in transaction mode, which keeps what a
    /// LISTEN brings; the worker notices, says so once and looks by itself.
    ///
    /// ```
    /// # use posthaste::{Worker, WorkerBuilder};
    /// # fn worker(pool: deadpool_postgres::Pool) -> Result<WorkerBuilder, tokio_postgres::Error> {
    /// let config: tokio_postgres::Config = "postgres://app@db.example.org/app".parse()?;
    /// Ok(Worker::builder(pool).bell(config, tokio_postgres::NoTls))
    /// # }
    /// ```
    pub fn bell<T>(mut self, config: tokio_postgres::Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.listen = Some(bell::listener(config, tls));
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
        for periodic in &self.periodic {
            store::periodic::put(&client, periodic).await?;
        }
        store::restore::recognise(&client).await?;
        drop(client);
        let stop = CancellationToken::new();
        let handlers = Arc::new(self.handlers);
        let runtime = tokio::runtime::Handle::current();
        let worked = self.queues.into_iter().map(|queue| {
            let name = queue.name.clone();
            let (handlers, runtime) = (Arc::clone(&handlers), runtime.clone());
            let runner = Runner::start(queue, handlers, runtime, stop.clone());
            (name, Arc::new(runner) as Arc<dyn Consumer>)
        });
        let queues = worked
            .chain(self.consumers)
            .map(|(name, consumer)| Arc::new(QueueState::new(&name, consumer)));
        let parts = Parts {
            pool: self.pool.clone(),
            config: self.config,
            queues: queues.collect(),
            stop: stop.clone(),
        };
        let (engine, settled) = Engine::new(parts);
        let (pool, listen) = (self.pool, self.listen);
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("posthaste-engine".into())
            .spawn(move || {
                // Nobody may be left to hear it.
                let _ = ended.send(engine::run(engine, settled, pool, listen));
            })
            .map_err(|error| ErrorKind::Config(format!("cannot start a thread: {error}")))?;
        Ok(WorkerHandle {
            stop,
            end: Some(end),
        })
    }

    fn check(&self) -> Result<(), Error> {
        let queues = self.queues.iter().map(|queue| &queue.name);
        let queues: Vec<&String> = queues
            .chain(self.consumers.iter().map(|(queue, _)| queue))
            .collect();
        let problem = || {
            if queues.is_empty() {
                return Err("a worker needs at least one queue".into());
            }
            if self.queues.is_empty() != self.handlers.is_empty() {
                return Err("a worker needs at least one handler for its queues, and a queue for its handlers".into());
            }
            for (at, queue) in queues.iter().enumerate() {
                config::text("a queue's name", queue, 1)?;
                if queues[..at].contains(queue) {
                    return Err(format!("the queue {queue:?} is named twice"));
                }
            }
            self.handlers.check()?;
            self.queues.iter().try_for_each(QueueConfig::check)?;
            self.config.check()
        };
        problem().map_err(|problem| ErrorKind::Config(problem).into())
    }
}

/// A worker at work. Dropping it asks it to stop, without waiting.
pub struct WorkerHandle {
    stop: CancellationToken,
    /// Nothing when the end was told already.
    end: Option<tokio::sync::oneshot::Receiver<Result<(), Error>>>,
}

impl WorkerHandle {
    /// Stops in good order: no more claims, running jobs get the grace period, the rest is given back without burning an attempt.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        self.ended().await
    }

    /// Completes when the worker has ended, which it does by itself only when something in it broke: the error says what. The jobs that it had are
    /// given back, or rescued by another worker.
    pub async fn ended(&mut self) -> Result<(), Error> {
        let Some(end) = &mut self.end else {
            return Ok(());
        };
        let ended = end.await;
        self.end = None;
        ended.unwrap_or_else(|_| Err(ErrorKind::Ended("its thread panicked".into()).into()))
    }

    /// Works until SIGTERM or SIGINT, then stops in good order. A second signal ends at once: what was running is rescued later. It also ends, with
    /// an error, when the worker ends by itself.
    pub async fn run_until_signal(mut self) -> Result<(), Error> {
        // Registered once: between two registrations a signal would be swallowed.
        let mut signals = Signals::listen()?;
        tokio::select! {
            () = signals.next() => {}
            ended = self.ended() => return ended,
        }
        tokio::select! {
            stopped = self.stop() => stopped,
            () = signals.next() => Err(ErrorKind::Ended("a second signal came before all jobs were given back".into()).into()),
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
