//! A worker before it starts: what it works on, with what, and how.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::claims::{Claims, Inbox, Intake};
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

/// Describes a worker: its queues, its handlers, its settings.
///
/// `S` is the [state](Self::state) that handlers find in their [`Context`].
pub struct WorkerBuilder<S = ()> {
    pub(super) database: Database,
    state: Arc<S>,
    pub(super) config: Config,
    pub(super) queues: Vec<QueueConfig>,
    pub(super) handlers: Handlers,
    /// Queues that no handler works on.
    pub(super) consumed: Vec<QueueState>,
    /// Settings of those that the program takes claims of.
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

    /// Gives all handlers that come after it something of the program's own, such as pools and
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
    /// Works on this queue with the handlers, this many jobs at once.
    pub fn queue(self, name: impl Into<String>, concurrency: usize) -> Self {
        self.queue_config(QueueConfig::new(name, concurrency))
    }

    /// Works on a queue with settings of its own.
    pub fn queue_config(mut self, queue: QueueConfig) -> Self {
        self.queues.push(queue);
        self
    }

    /// Runs jobs of this name with this handler. A name that ends in `*` stands for all that begin
    /// so; an exact name goes before a pattern, and a longer pattern before a shorter one, as in
    /// `posthaste.route`. Two of the same name are refused at the start.
    ///
    /// The handlers of [kinds of jobs](Self::job) are shorter to write; this one is for names that
    /// are known only when the program runs. An `anyhow::Error` that `?` turns into its error hides
    /// a [`RetryLater`](crate::RetryLater): return that itself.
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

    /// Runs jobs of this [kind](JobArgs) with this handler, which is given their arguments.
    ///
    /// It may return what [`IntoHandlerResult`] names: an error is stored with the job and counts
    /// as an attempt. Arguments that are no `A` never reach the handler: they count as an attempt,
    /// and the error names the argument. What else there is to know of the job, [`Context::job`]
    /// knows.
    ///
    /// [`timeout`](Self::timeout), [`backoff`](Self::backoff) and
    /// [`concurrency`](Self::concurrency) after it hold for this handler alone.
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

    /// A run of the handler just named that takes longer counts as an attempt; without this, the
    /// queue's timeout holds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.handlers
            .set("a timeout", |settings| settings.timeout = Some(timeout));
        self
    }

    /// The wait before the next attempt of a job of the handler just named; without this, the
    /// queue's holds.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.handlers
            .set("a back-off", |settings| settings.backoff = Some(backoff));
        self
    }

    /// How many jobs of the handler just named run at once at most, in each queue of this worker.
    /// Others of the queue pass those that wait for it, until as many wait in this worker as jobs
    /// of the queue may run: give them a queue of their own if they come in masses.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.handlers.set("a concurrency", |settings| {
            settings.concurrency = Some(jobs)
        });
        self
    }

    /// Runs this around each run of a handler, whichever it is: to measure it, to set up what it
    /// needs, to turn its errors into others. `next` is the rest of the run; the first layer is the
    /// outermost. The timeout holds for all of it. An error that you make of another should have it
    /// as its source: only there are errors of arguments hidden from logs.
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

    /// Hands the jobs of this queue to the program by whole claims, which it takes when it has time
    /// for them: one statement then does for a thousand jobs what handlers would do job by job.
    ///
    /// `concurrency` is how many jobs come together at most; a job that has no outcome `timeout`
    /// after its claim was taken counts as an attempt, and is taken from the program.
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
        let (inbox, claims) = Inbox::new(queue);
        (self.consumer(name, Intake(inbox)), claims)
    }

    /// Gives the jobs of this queue to a [consumer](crate::consumer), which is called on the
    /// engine's own thread. [`claims`](Self::claims) are easier to handle.
    pub fn consumer(mut self, queue: impl AsRef<str>, consumer: impl Consumer) -> Self {
        let state = QueueState::new(queue.as_ref(), Arc::new(consumer));
        self.consumed.push(state);
        self
    }

    /// Sees to it that this job comes by its schedule, from now on and after this worker has ended:
    /// it is written into `posthaste.periodic`, where one of the same name is replaced, and stays
    /// until somebody deletes it there. Exactly one job is enqueued for each tick, whichever worker
    /// leads.
    pub fn periodic(mut self, periodic: Periodic) -> Self {
        self.periodic.push(periodic);
        self
    }

    /// Wakes the worker as soon as something is enqueued for it, over a connection of its own that
    /// listens: jobs start within a round trip or two, and a worker without jobs costs next to
    /// nothing. Without this, or while that connection is lost, it polls, ten times a
    /// second unless [`Config::poll_interval`] says otherwise.
    ///
    /// A worker from a pool of sqlx or from a URL listens without this call, unless you say
    /// [`Database::without_notifier`]. A pool of deadpool-postgres does not tell its settings, so
    /// you pass what it was made from. Do not pass the address of a pooler in transaction mode,
    /// which keeps what a LISTEN brings: the worker notices, logs that once and polls.
    /// Pass the server's own address, here or to [`Database::notifier_at`].
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

    /// The site that this worker belongs to, such as `production`: a copy of its store is not
    /// worked by another. See [`Config::site`].
    pub fn site(mut self, name: impl Into<String>) -> Self {
        self.config.site = Some(name.into());
        self
    }

    /// How long running jobs may go on after a stop was asked for.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace = grace;
        self
    }
}
