//! The description of a worker: its queues, its handlers and its settings.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::claims::{ClaimInbox, Claims, InboxIntake};
use super::context::Context;
use super::handlers::{Handlers, Next};
use super::test_probe::TestProbe;
use crate::config::{Config, QueueConfig};
use crate::consumer::Consumer;
use crate::database::Database;
use crate::handler::{HandlerResult, IntoHandlerResult};
use crate::job::{Job, JobArgs};
use crate::parts::queue::QueueState;
use crate::periodic::Periodic;
use crate::retry::Backoff;
use crate::store::session::{self, Listen};

/// Describes a worker: its queues, its handlers and its settings.
///
/// `S` is the [state](Self::state) that handlers read from their [`Context`].
pub struct WorkerBuilder<S = ()> {
    pub(super) database: Database,
    state: Arc<S>,
    pub(super) config: Config,
    pub(super) queues: Vec<QueueConfig>,
    pub(super) handlers: Handlers,
    /// Queues of consumers and claims.
    pub(super) consumed: Vec<QueueState>,
    /// Settings of the queues of [`claims`](Self::claims).
    pub(super) claimed: Vec<QueueConfig>,
    pub(super) periodic: Vec<Periodic>,
    pub(super) listen: Option<Listen>,
    pub(super) probe: Option<TestProbe>,
}

impl WorkerBuilder {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database,
            state: Arc::new(()),
            config: Config::default(),
            queues: Vec::new(),
            handlers: Handlers::default(),
            consumed: Vec::new(),
            claimed: Vec::new(),
            periodic: Vec::new(),
            listen: None,
            probe: None,
        }
    }

    /// Gives the handlers that are added after it a value of the program, such as pools and
    /// clients: [`Context::state`]. It is stored once and shared by all runs.
    ///
    /// ```
    /// # use posthaste::{Context, JobArgs, WorkerBuilder};
    /// struct App {
    ///     greeting: String,
    /// }
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Welcome { to: String }
    /// # impl JobArgs for Welcome { const NAME: &'static str = "mail.welcome"; }
    ///
    /// async fn welcome(context: Context<App>, mail: Welcome) {
    ///     println!("{}, {}", context.state().greeting, mail.to);
    /// }
    /// # fn builder(builder: WorkerBuilder) -> WorkerBuilder<App> {
    /// builder.state(App { greeting: "welcome".into() }).job(welcome)
    /// # }
    /// ```
    pub fn state<S>(self, state: S) -> WorkerBuilder<S> {
        WorkerBuilder {
            database: self.database,
            state: Arc::new(state),
            config: self.config,
            queues: self.queues,
            handlers: self.handlers,
            consumed: self.consumed,
            claimed: self.claimed,
            periodic: self.periodic,
            listen: self.listen,
            probe: self.probe,
        }
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Works on this queue with the handlers, at most this many jobs at once.
    pub fn queue(self, name: impl Into<String>, concurrency: usize) -> Self {
        self.queue_config(QueueConfig::new(name, concurrency))
    }

    /// Works on a queue with these settings.
    pub fn queue_config(mut self, queue: QueueConfig) -> Self {
        self.queues.push(queue);
        self
    }

    /// Runs jobs of this name with this handler. A name that ends in `*` matches all names with
    /// that prefix. An exact name takes precedence over a pattern, and a longer pattern over a
    /// shorter one, as in `posthaste.route`. Two handlers of the same name are rejected at the
    /// start.
    ///
    /// Handlers of [kinds of jobs](Self::job) are shorter to write; use this one for names that are
    /// known only at run time. An `anyhow::Error` that `?` converts into this error hides a
    /// [`RetryLater`](crate::RetryLater): return that directly.
    pub fn handler<F, R>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Context<S>, Arc<Job>) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        self.handlers.add(name.into(), move |context, job| {
            handler(context.with_state(&state), job)
        });
        self
    }

    /// Runs jobs of this [kind](JobArgs) with this handler, which receives their arguments.
    ///
    /// The handler may return the types of [`IntoHandlerResult`]: an error is stored with the job
    /// and counts as an attempt. Arguments that are not an `A` count as an attempt without reaching
    /// the handler, and the error names the argument. [`Context::job`] returns the other properties
    /// of the job.
    ///
    /// [`timeout`](Self::timeout), [`backoff`](Self::backoff) and
    /// [`concurrency`](Self::concurrency) after it apply to this handler only.
    ///
    /// ```
    /// use std::time::Duration;
    /// use posthaste::{Context, JobArgs, WorkerBuilder};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Welcome {
    ///     to: String,
    /// }
    ///
    /// impl JobArgs for Welcome {
    ///     const NAME: &'static str = "mail.welcome";
    /// }
    ///
    /// async fn welcome(context: Context, mail: Welcome) -> anyhow::Result<()> {
    ///     println!("welcome, {} (attempt {})", mail.to, context.job().attempt);
    ///     Ok(())
    /// }
    /// # fn with_welcome(builder: WorkerBuilder) -> WorkerBuilder {
    /// builder.job(welcome).timeout(Duration::from_secs(10)).concurrency(4)
    /// # }
    /// ```
    pub fn job<A, F, R>(self, handler: F) -> Self
    where
        A: JobArgs + DeserializeOwned,
        F: Fn(Context<S>, A) -> R + Send + Sync + 'static,
        R: Future<Output: IntoHandlerResult> + Send + 'static,
    {
        self.handler(A::NAME, move |context, job| {
            let run = job.arguments().map(|arguments| handler(context, arguments));
            async move { run?.await.into_handler_result() }
        })
    }

    /// Sets the timeout of the last handler: a longer run ends and counts as an attempt. The
    /// default is the queue's timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.handlers
            .change_last("a timeout", |settings| settings.timeout = Some(timeout));
        self
    }

    /// Sets the delays between attempts of jobs of the last handler. The default is the queue's.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.handlers
            .change_last("a back-off", |settings| settings.backoff = Some(backoff));
        self
    }

    /// Limits how many jobs of the last handler run at once in each queue of this worker. Other
    /// jobs of the queue overtake those that wait for it, until as many wait in this worker as jobs
    /// of the queue may run: use a separate queue for jobs that arrive in large numbers.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.handlers.change_last("a concurrency", |settings| {
            settings.concurrency = Some(jobs)
        });
        self
    }

    /// Runs this around each run of every handler: to measure it, to set up what it needs, to
    /// convert its errors. `next` is the rest of the run; the first layer is the outermost. The
    /// timeout applies to all layers and the handler together. An error that replaces another
    /// should have it as its source: only then are errors of arguments hidden from logs.
    ///
    /// ```
    /// # use posthaste::{Context, Next, WorkerBuilder};
    /// # fn with_layer(builder: WorkerBuilder) -> WorkerBuilder {
    /// builder.layer(async |context: Context, next: Next| {
    ///     let begun = std::time::Instant::now();
    ///     let result = next.await;
    ///     println!("{} took {:?}", context.job().name, begun.elapsed());
    ///     result
    /// })
    /// # }
    /// ```
    pub fn layer<F, R>(mut self, layer: F) -> Self
    where
        F: Fn(Context<S>, Next) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        self.handlers
            .layer(move |context, next| layer(context.with_state(&state), next));
        self
    }

    /// Delivers the jobs of this queue to the program by whole claims, which it takes when it is
    /// ready: one statement can then do for a thousand jobs what handlers do job by job.
    ///
    /// `concurrency` is the most jobs of a claim. A job without an outcome `timeout` after its
    /// claim was taken counts as an attempt, and is taken back.
    ///
    /// ```no_run
    /// use posthaste::{QueueConfig, Worker};
    ///
    /// # async fn write<'a>(jobs: impl Iterator<Item = &'a posthaste::Job> + Send)
    /// #     -> anyhow::Result<()> { Ok(()) }
    /// # async fn example(pool: deadpool_postgres::Pool) -> anyhow::Result<()> {
    /// let (builder, mut claims) = Worker::builder(pool).claims(QueueConfig::new("audit", 1_000));
    /// let worker = builder.start().await?;
    /// let working = tokio::spawn(async move {
    ///     while let Some(claim) = claims.next().await {
    ///         match write(claim.jobs()).await {
    ///             Ok(()) => claim.complete(),
    ///             Err(error) => claim.fail(error),
    ///         }
    ///     }
    /// });
    /// worker.run_until_signal().await?; // which ends the claims
    /// working.await?;
    /// # Ok(()) }
    /// ```
    pub fn claims(mut self, queue: QueueConfig) -> (Self, Claims) {
        self.claimed.push(queue.clone());
        let name = queue.name.clone();
        let (inbox, claims) = ClaimInbox::new(queue);
        (self.consumer(name, InboxIntake(inbox)), claims)
    }

    /// Gives the jobs of this queue to a [consumer](crate::consumer), which is called on the
    /// engine's thread. [`claims`](Self::claims) are easier to use.
    pub fn consumer(mut self, queue: impl AsRef<str>, consumer: impl Consumer) -> Self {
        let state = QueueState::new(queue.as_ref(), Arc::new(consumer));
        self.consumed.push(state);
        self
    }

    /// Schedules this job, from now on and after this worker has ended: the definition is written
    /// to `posthaste.periodic`, where it replaces one of the same name, and stays until an operator
    /// deletes it. Exactly one job is enqueued for each tick, whichever worker is the leader.
    pub fn periodic(mut self, periodic: Periodic) -> Self {
        self.periodic.push(periodic);
        self
    }

    /// Wakes the worker as soon as a job is enqueued for it, over a separate connection that
    /// listens: jobs start within one or two round trips, and an idle worker costs almost nothing.
    /// Without this, or while that connection is lost, the worker polls, by default ten times a
    /// second; see [`Config::poll_interval`].
    ///
    /// A worker from a pool of sqlx or from a URL listens without this call, unless you call
    /// [`Database::without_notifier`]. A pool of deadpool-postgres does not expose its settings, so
    /// pass the settings that it was made from. Do not pass the address of a pooler in transaction
    /// mode, which drops notifications: the worker detects that, logs it once and polls. Pass the
    /// server's own address, here or to [`Database::notifier_at`].
    ///
    /// ```
    /// # use posthaste::{Worker, WorkerBuilder};
    /// # fn worker(pool: deadpool_postgres::Pool) -> Result<WorkerBuilder, tokio_postgres::Error> {
    /// let config: tokio_postgres::Config = "postgres://app@db.example.org/app".parse()?;
    /// Ok(Worker::builder(pool).notifier(config, tokio_postgres::NoTls))
    /// # }
    /// ```
    pub fn notifier<T>(mut self, config: tokio_postgres::Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        self.listen = Some(session::connector(config, tls));
        self
    }

    /// Replaces all settings of the process.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the site of this worker, such as `production`: workers of another site do not work on a
    /// copy of its store. See [`Config::site`].
    pub fn site(mut self, name: impl Into<String>) -> Self {
        self.config.site = Some(name.into());
        self
    }

    /// Sets how long running jobs may continue after a stop was requested.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace = grace;
        self
    }
}
