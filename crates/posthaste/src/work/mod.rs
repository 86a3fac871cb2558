//! Work: the worker of a process, with handlers and other consumers.

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
use crate::store::site::Site;
use crate::store::{self, migrate};
pub use builder::WorkerBuilder;
use runner::Runner;
use test_probe::TestProbe;

/// Works on queues, with handlers or with consumers of your own.
///
/// The engine lives on a thread of its own and opens its own connections by its [`Database`]
/// (five, one for the heartbeat, one for the [notifier](WorkerBuilder::notifier), and one for the
/// tasks of its [consumers](crate::consumer)); handlers run on the runtime that
/// [`WorkerBuilder::start`] is called on.
pub struct Worker;

impl Worker {
    /// Begins to describe a worker on this database: a pool of deadpool-postgres or of sqlx, or a
    /// [`Database`].
    pub fn builder(database: impl Into<Database>) -> WorkerBuilder {
        WorkerBuilder::new(database.into())
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Starts working. Fails at once when the settings make no sense, the database cannot be
    /// reached, or its schema is not migrated.
    pub async fn start(self) -> Result<WorkerHandle, Error> {
        self.check()?;
        let listen = match self.listen {
            Some(listen) => Some(listen),
            None => self.database.listen()?,
        };
        let client = self.database.client().await?;
        migrate::require_current(&client).await?;
        // Its manager is what the engine connects by.
        let pool = self.database.pool(1)?;
        let site = Arc::new(Site::new(self.config.site.as_deref(), &pool));
        let mut periodic = self.periodic;
        match site.enter(&client, true).await {
            // It waits.
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
        // Until its first answer.
        owed.asked();
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
                // Nobody may be left to hear it.
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

    /// The queues of its handlers.
    pub(crate) fn queue_names(&self) -> Vec<String> {
        let queues = self.queues.iter();
        queues.map(|queue| queue.name.clone()).collect()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Lets a test watch the runs.
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
                config::text("a queue's name", queue, 1)?;
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

/// A worker at work. Dropping it asks it to stop, without waiting.
pub struct WorkerHandle {
    stop: CancellationToken,
    queues: Vec<Arc<QueueState>>,
    owed: Arc<OldestUnanswered>,
    admission: Arc<Admission>,
    /// None when the end was reported already.
    end: Option<tokio::sync::oneshot::Receiver<Result<(), Error>>>,
}

impl WorkerHandle {
    /// Stops in good order: no more claims, running jobs get the grace period, the rest is given
    /// back without counting an attempt.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        self.ended().await
    }

    /// For how long the database has not answered a claim or a heartbeat of this worker: zero while
    /// all goes well, also where nothing waits to be done. Until its first heartbeat is answered it
    /// counts from the start.
    ///
    /// ```no_run
    /// # fn example(worker: posthaste::WorkerHandle) -> bool {
    /// // Ready, as a probe of a container asks it:
    /// worker.unanswered_for() < std::time::Duration::from_secs(10)
    /// # }
    /// ```
    pub fn unanswered_for(&self) -> Duration {
        let claims = self.queues.iter().map(|queue| queue.owed.waited());
        claims.chain([self.owed.waited()]).max().unwrap_or_default()
    }

    /// Why the worker waits, where another [site](crate::Config::site) works its store; nothing
    /// where it may work.
    pub fn refused(&self) -> Option<String> {
        self.admission.refused()
    }

    /// Completes when the worker has ended, which it does by itself only when something in it
    /// broke: the error says what. The jobs that it had are given back, or rescued by another
    /// worker.
    pub async fn ended(&mut self) -> Result<(), Error> {
        let Some(end) = &mut self.end else {
            return Ok(());
        };
        let ended = end.await;
        self.end = None;
        ended.unwrap_or_else(|_| Err(ErrorKind::Ended("its thread panicked".into()).into()))
    }

    /// Works until SIGTERM or SIGINT, then stops in good order. A second signal ends at once: what
    /// was running is rescued later. It also ends, with an error, when the worker ends by itself.
    pub async fn run_until_signal(mut self) -> Result<(), Error> {
        // Registered once: between two registrations a signal would be swallowed.
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
