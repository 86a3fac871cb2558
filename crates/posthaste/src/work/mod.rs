//! The worker of a process, with handlers and other consumers.

mod builder;
pub(crate) mod claims;
pub(crate) mod context;
#[cfg(feature = "exec")]
pub(crate) mod exec;
pub(crate) mod handlers;
#[cfg(feature = "http")]
pub(crate) mod http;
mod runner;
pub(crate) mod test_probe;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{self, QueueConfig};
use crate::database::Database;
use crate::engine::{self, Start};
use crate::error::{Error, ErrorKind};
use crate::parts::admission::Admission;
use crate::parts::failing_endpoints::FailingEndpoints;
use crate::parts::oldest_unanswered::OldestUnanswered;
use crate::parts::queue::QueueState;
use crate::shutdown::Signals;
use crate::store::copied_database::Site;
use crate::store::{self, migrate};
pub use builder::WorkerBuilder;
use runner::Runner;
use test_probe::TestProbe;

/// Works on queues, with handlers or with custom consumers.
///
/// The engine runs on a separate thread and opens its own connections from its [`Database`]: five,
/// one for the heartbeat, one for the [notifier](WorkerBuilder::notifier), and one for the tasks of
/// its [consumers](crate::consumer). Handlers run on the runtime in which [`WorkerBuilder::start`]
/// is called.
pub struct Worker;

impl Worker {
    /// Describes a worker on this database: a pool of deadpool-postgres or of sqlx, or a
    /// [`Database`].
    pub fn builder(database: impl Into<Database>) -> WorkerBuilder {
        WorkerBuilder::new(database.into())
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Starts the worker. Fails immediately if the settings are invalid, the database cannot be
    /// reached, or its schema is not migrated.
    pub async fn start(self) -> Result<WorkerHandle, Error> {
        self.check()?;
        let listen = match self.listen {
            Some(listen) => Some(listen),
            None => self.database.listen()?,
        };
        let client = self.database.client().await?;
        migrate::check_schema(&client).await?;
        // The engine connects with the manager of this pool.
        let pool = self.database.pool(1)?;
        let site = Arc::new(Site::new(self.config.site.as_deref(), &pool));
        let mut periodic = self.periodic;
        match site.require_admission(&client, true).await {
            // The worker waits until its site is admitted.
            Err(error) if error.is_other_site() => {}
            entered => {
                entered?;
                for one in std::mem::take(&mut periodic) {
                    store::periodic::put(&client, &one).await?;
                }
            }
        }
        drop(client);
        let stop = CancellationToken::new();
        let handlers = Arc::new(self.handlers);
        let runtime = tokio::runtime::Handle::current();
        let failing = Arc::<FailingEndpoints>::default();
        let worked = self.queues.into_iter().map(|queue| {
            let name = queue.name.clone();
            let (handlers, runtime) = (Arc::clone(&handlers), runtime.clone());
            let (probe, failing) = (self.probe.clone(), Arc::clone(&failing));
            let runner = Runner::start(queue, handlers, runtime, stop.clone(), probe, failing);
            QueueState::new(&name, Arc::new(runner))
        });
        let queues: Vec<_> = worked.chain(self.consumed).map(Arc::new).collect();
        let owed = Arc::<OldestUnanswered>::default();
        // The first answer is pending from now on.
        owed.record_request();
        let admission = Arc::<Admission>::default();
        let start = Start {
            pool,
            config: self.config,
            queues: queues.clone(),
            listen,
            site,
            periodic,
            admission: Arc::clone(&admission),
            owed: Arc::clone(&owed),
            failing: Arc::clone(&failing),
            stop: stop.clone(),
        };
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("posthaste-engine".into())
            .spawn(move || {
                // The handle may have been dropped.
                let _ = ended.send(engine::run(start));
            })
            .map_err(|error| ErrorKind::Config(format!("cannot start a thread: {error}")))?;
        Ok(WorkerHandle {
            stop,
            queues,
            owed,
            admission,
            end: Some(end),
        })
    }

    /// Returns the queues of its handlers.
    pub(crate) fn queue_names(&self) -> Vec<String> {
        let queues = self.queues.iter();
        queues.map(|queue| queue.name.clone()).collect()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Sends each finished run to a test.
    pub(crate) fn observe_runs(&mut self, probe: TestProbe) {
        self.probe = Some(probe);
    }

    fn check(&self) -> Result<(), Error> {
        let queues = self.queues.iter().map(|queue| &*queue.name);
        let queues: Vec<&str> = queues
            .chain(self.consumed.iter().map(|queue| &*queue.name))
            .collect();
        let problem = || {
            if queues.is_empty() {
                return Err("a worker needs at least one queue".into());
            }
            if self.queues.is_empty() != self.handlers.is_empty() {
                return Err(
                    "a worker needs at least one handler for its queues, and a queue for its \
                     handlers"
                        .into(),
                );
            }
            for (at, queue) in queues.iter().enumerate() {
                config::check_text("a queue's name", queue, 1)?;
                if queues[..at].contains(queue) {
                    return Err(format!("the queue {queue:?} is named twice"));
                }
            }
            self.handlers.check()?;
            let mut configs = self.queues.iter().chain(&self.claimed);
            configs.try_for_each(QueueConfig::check)?;
            self.config.check()
        };
        problem().map_err(|problem| ErrorKind::Config(problem).into())
    }
}

/// A running worker. Dropping the handle asks the worker to stop, without waiting.
pub struct WorkerHandle {
    stop: CancellationToken,
    queues: Vec<Arc<QueueState>>,
    owed: Arc<OldestUnanswered>,
    admission: Arc<Admission>,
    /// `None` after the end was reported.
    end: Option<tokio::sync::oneshot::Receiver<Result<(), Error>>>,
}

impl WorkerHandle {
    /// Stops the worker cleanly: it claims no more jobs, gives running jobs the grace period, and
    /// returns the others without counting an attempt.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        self.ended().await
    }

    /// Returns how long the database has not answered a claim or a heartbeat of this worker. It is
    /// zero while the database answers, even if no job is due. Until the first heartbeat is
    /// answered, it is the time since the start.
    ///
    /// ```no_run
    /// # fn example(worker: posthaste::WorkerHandle) -> bool {
    /// // Ready, as a probe of a container asks it:
    /// worker.unanswered_for() < std::time::Duration::from_secs(10)
    /// # }
    /// ```
    pub fn unanswered_for(&self) -> Duration {
        let claims = self.queues.iter().map(|queue| queue.owed.waiting_time());
        claims
            .chain([self.owed.waiting_time()])
            .max()
            .unwrap_or_default()
    }

    /// Returns why the worker waits if another [site](crate::Config::site) works on its store,
    /// `None` if this worker may work.
    pub fn refused(&self) -> Option<String> {
        self.admission.refused()
    }

    /// Completes when the worker has ended. It ends without being stopped only after an internal
    /// failure, which is the error. Its jobs are given back, or rescued by another worker.
    pub async fn ended(&mut self) -> Result<(), Error> {
        let Some(end) = &mut self.end else {
            return Ok(());
        };
        let ended = end.await;
        self.end = None;
        ended.unwrap_or_else(|_| Err(ErrorKind::Ended("its thread panicked".into()).into()))
    }

    /// Runs until SIGTERM or SIGINT, then stops cleanly. A second signal ends the wait immediately;
    /// jobs that were still running are rescued later. Fails if the worker ends because of an
    /// internal failure.
    pub async fn run_until_signal(mut self) -> Result<(), Error> {
        // Registered once: a signal between two registrations would be lost.
        let mut signals = Signals::listen()?;
        tokio::select! {
            () = signals.next() => {}
            ended = self.ended() => return ended,
        }
        tokio::select! {
            stopped = self.stop() => stopped,
            () = signals.next() => Err(ErrorKind::Ended("a second signal arrived before all jobs \
                were returned".into()).into()),
        }
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
