//! Helpers for tests of programs that use posthaste: of handlers alone, and of the jobs that the
//! program enqueues.
//!
//! - A handler without a database: [`TestRun`].
//! - Jobs that code under test has enqueued, before its transaction commits: [`assert_enqueued`],
//!   [`refute_enqueued`], [`enqueued`].
//! - Jobs run by the real worker, on a separate database of the test: [`run_until_idle`],
//!   [`work_one`].
//!
//! ```
//! use posthaste::testing::TestRun;
//! use posthaste::{Context, JobArgs, Outcome};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Welcome {
//!     to: String,
//! }
//!
//! impl JobArgs for Welcome {
//!     const NAME: &'static str = "mail.welcome";
//! }
//!
//! async fn welcome(context: Context<Vec<&'static str>>, mail: Welcome) -> anyhow::Result<()> {
//!     anyhow::ensure!(!context.state().contains(&&*mail.to), "{} is unwelcome", mail.to);
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let mail = Welcome { to: "Ada".into() };
//! let run = TestRun::of(mail).unwrap().state(vec!["Eve"]).attempt(2);
//! assert_eq!(run.call(welcome).await.unwrap(), Outcome::Done);
//! # }
//! ```

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::database::Database;
use crate::error::Error;
use crate::executor::Executor;
use crate::handler::{HandlerResult, IntoHandlerResult};
use crate::job::{DEFAULT_EXPIRES_AFTER, IntoJob, Job, JobArgs, JobId};
use crate::store;
use crate::work::WorkerBuilder;
use crate::work::context::{Context, Run};
pub use crate::work::test_probe::FinishedRun;
use crate::work::test_probe::TestProbe;

/// Time between two checks whether a queue is idle.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A run of a job that exists only in the test, not in a database.
///
/// [`Context::complete_in`] records the call and sends nothing.
pub struct TestRun<S = ()> {
    job: Job,
    state: Arc<S>,
    delivery_id: Uuid,
    stopping: CancellationToken,
    cancelled: CancellationToken,
    completed: Arc<AtomicBool>,
}

impl<S> fmt::Debug for TestRun<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRun")
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

impl TestRun {
    /// Creates the first attempt of this job. Rejects a job that [`enqueue`](crate::enqueue())
    /// would reject.
    pub fn of<'a>(job: impl IntoJob<'a>) -> Result<Self, Error> {
        let (job, now) = (job.into_job(), Timestamp::now());
        let job = job.scheduled_from(now).unwrap_or_else(|| job.into_owned());
        job.check()?;
        let scheduled_at = job.scheduled_at.unwrap_or(now);
        let expires_at = scheduled_at.checked_add(DEFAULT_EXPIRES_AFTER);
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        let job = Job {
            queue: job.queue.as_deref().unwrap_or("default").into(),
            priority: job.priority,
            scheduled_at,
            expires_at: job.expires_at.or(expires_at.ok()).unwrap_or(now),
            max_attempts: job.max_attempts,
            tag: job.tag.as_str().into(),
            unique_key: text(&job.unique_key),
            ordering_key: text(&job.ordering_key),
            trace: text(&job.trace),
            ..Job::new(JobId(1), &job.name, now, &job.kwargs)
        };
        Ok(Self {
            job,
            state: Arc::new(()),
            delivery_id: Uuid::from_u128(1),
            stopping: CancellationToken::new(),
            cancelled: CancellationToken::new(),
            completed: Arc::default(),
        })
    }

    /// Sets the state that handlers read by [`Context::state`].
    pub fn state<S>(self, state: S) -> TestRun<S> {
        TestRun {
            job: self.job,
            state: Arc::new(state),
            delivery_id: self.delivery_id,
            stopping: self.stopping,
            cancelled: self.cancelled,
            completed: self.completed,
        }
    }
}

impl<S> TestRun<S> {
    /// Sets the attempt; 1 is the first.
    pub fn attempt(mut self, attempt: i32) -> Self {
        self.job.attempt = attempt;
        self
    }

    /// Sets the id of the job.
    pub fn id(mut self, id: JobId) -> Self {
        self.job.id = id;
        self
    }

    /// Sets the delivery id, by which a receiver drops duplicates.
    pub fn delivery_id(mut self, id: Uuid) -> Self {
        self.delivery_id = id;
        self
    }

    /// Returns the context that the handler receives.
    pub fn context(&self) -> Context<S> {
        let run = Run {
            fence: None,
            job: Arc::new(self.job.clone()),
            delivery_id: self.delivery_id,
            stopping: self.stopping.clone(),
            cancelled: self.cancelled.clone(),
            completed: Arc::clone(&self.completed),
            failing: Arc::default(),
        };
        Context::new(Arc::new(run)).with_state(&self.state)
    }

    /// Runs this handler as a worker does, with the arguments read back from JSON. Fails if the
    /// arguments are not an `A`, or if the job has another name.
    pub async fn call<A, F, R>(&self, handler: F) -> HandlerResult
    where
        A: JobArgs + DeserializeOwned,
        F: FnOnce(Context<S>, A) -> R,
        R: Future<Output: IntoHandlerResult>,
    {
        if &*self.job.name != A::NAME {
            let (name, other) = (&self.job.name, A::NAME);
            return Err(format!("the job is {name}, but the handler expects {other}").into());
        }
        let arguments = self.job.arguments()?;
        handler(self.context(), arguments)
            .await
            .into_handler_result()
    }

    /// Asks the handler to stop: [`Context::stopping`] completes.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Cancels the job: [`Context::cancelled`] completes.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Returns whether [`Context::complete_in`] was called.
    pub fn is_completed(&self) -> bool {
        self.completed.load(Ordering::SeqCst)
    }
}

/// Returns the arguments of all jobs of this kind that are enqueued and have not ended, in the
/// order of their ids, as visible to this transaction, including the jobs it enqueued. Fails if a
/// job has arguments that are not an `A`.
///
/// ```no_run
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Welcome { to: String }
/// # impl posthaste::JobArgs for Welcome { const NAME: &'static str = "mail.welcome"; }
/// # async fn example(mut client: tokio_postgres::Client) -> anyhow::Result<()> {
/// let tx = client.transaction().await?;
/// // … what is tested …
/// let mails: Vec<Welcome> = posthaste::testing::enqueued(&tx).await?;
/// # Ok(()) }
/// ```
pub async fn enqueued<A, E>(mut executor: E) -> Result<Vec<A>, Error>
where
    A: JobArgs + DeserializeOwned,
    E: Executor,
{
    let jobs = store::client::enqueued(&mut executor, A::NAME).await?;
    let read = jobs.iter().map(|kwargs| serde_json::from_str(kwargs));
    read.collect::<Result<_, _>>()
        .map_err(|error: serde_json::Error| Error::invalid("kwargs", error.to_string()))
}

/// Asserts that an enqueued job of this kind satisfies the predicate; see [`enqueued`].
///
/// ```no_run
/// # use posthaste::testing::assert_enqueued;
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Welcome { to: String }
/// # impl posthaste::JobArgs for Welcome { const NAME: &'static str = "mail.welcome"; }
/// # async fn example(tx: tokio_postgres::Transaction<'_>) {
/// assert_enqueued(&tx, |mail: &Welcome| mail.to == "Ada").await;
/// # }
/// ```
///
/// # Panics
/// If there is none, with the caller's location and the arguments of the existing jobs; or if the
/// query fails.
#[track_caller]
pub fn assert_enqueued<A, E>(executor: E, holds: impl Fn(&A) -> bool) -> impl Future<Output = ()>
where
    A: JobArgs + DeserializeOwned,
    E: Executor,
{
    let caller = Location::caller();
    async move {
        let jobs = enqueued_or_panic(executor, caller).await;
        assert!(
            jobs.iter().any(holds),
            "{caller}: none of the {} enqueued jobs {} matches: {}",
            jobs.len(),
            A::NAME,
            format_jobs(&jobs)
        );
    }
}

/// Asserts that no enqueued job of this kind satisfies the predicate; see [`enqueued`].
///
/// # Panics
/// If there is one, with the caller's location and the arguments of all existing jobs; or if the
/// query fails.
#[track_caller]
pub fn refute_enqueued<A, E>(executor: E, holds: impl Fn(&A) -> bool) -> impl Future<Output = ()>
where
    A: JobArgs + DeserializeOwned,
    E: Executor,
{
    let caller = Location::caller();
    async move {
        let jobs = enqueued_or_panic(executor, caller).await;
        assert!(
            !jobs.iter().any(holds),
            "{caller}: one of the {} enqueued jobs {} matches: {}",
            jobs.len(),
            A::NAME,
            format_jobs(&jobs)
        );
    }
}

#[expect(clippy::panic, reason = "an assertion of the user's test")]
async fn enqueued_or_panic<A, E>(executor: E, caller: &Location<'_>) -> Vec<A>
where
    A: JobArgs + DeserializeOwned,
    E: Executor,
{
    match enqueued(executor).await {
        Ok(jobs) => jobs,
        Err(error) => panic!("{caller}: jobs {} cannot be queried: {error}", A::NAME),
    }
}

/// Formats at most ten jobs.
fn format_jobs(jobs: &[impl serde::Serialize]) -> String {
    let shown = jobs.iter().take(10).map(serde_json::to_string);
    let shown: Vec<String> = shown.filter_map(Result::ok).collect();
    shown.join(", ")
}

/// Runs a worker until no job of its queues is due, running or blocked, then stops it. Returns the
/// runs in the order in which they ended. Does not wait for jobs that are scheduled or to be
/// retried later: call it again for these. Jobs of a paused queue count as due, so it keeps waiting
/// for them.
///
/// ```no_run
/// use posthaste::Worker;
/// use posthaste::testing::run_until_idle;
///
/// # async fn example(pool: deadpool_postgres::Pool) -> anyhow::Result<()> {
/// let worker = Worker::builder(pool).queue("default", 4);
/// # let worker = worker.handler("x", |_, _| async { Ok(posthaste::Outcome::Done) });
/// for ran in run_until_idle(worker).await? {
///     assert!(ran.result.is_ok(), "{ran:?}");
/// }
/// # Ok(()) }
/// ```
pub async fn run_until_idle<S>(worker: WorkerBuilder<S>) -> Result<Vec<FinishedRun>, Error>
where
    S: Send + Sync + 'static,
{
    run_jobs(worker, usize::MAX).await
}

/// Runs the next job of the worker's queues, then stops the worker. Returns `None` if no job is
/// due.
pub async fn work_one<S>(worker: WorkerBuilder<S>) -> Result<Option<FinishedRun>, Error>
where
    S: Send + Sync + 'static,
{
    Ok(run_jobs(worker, 1).await?.pop())
}

async fn run_jobs<S>(mut worker: WorkerBuilder<S>, jobs: usize) -> Result<Vec<FinishedRun>, Error>
where
    S: Send + Sync + 'static,
{
    let (probe, mut runs) = TestProbe::new(jobs);
    worker.observe_runs(probe);
    // For a pool of deadpool this is the same pool; any other database is connected once for all
    // checks.
    let database = Database::from(worker.database().pool(1)?);
    let queues = worker.queue_names();
    let mut running = worker.start().await?;
    let mut ran = Vec::new();
    while ran.len() < jobs {
        tokio::select! {
            biased;
            Some(run) = runs.recv() => ran.push(run),
            ended = running.ended() => { ended?; break }
            () = tokio::time::sleep(POLL_INTERVAL) => {
                // The connection is returned after each check: the handlers may need the pool's
                // only connection.
                let client = database.client().await?;
                if store::is_idle(&client, &queues).await? {
                    break;
                }
            }
        }
    }
    running.stop().await?;
    while let Ok(run) = runs.try_recv() {
        ran.push(run);
    }
    Ok(ran)
}
