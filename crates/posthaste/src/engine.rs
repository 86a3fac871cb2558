//! The engine of a worker process: starts the loops that claim, acknowledge and maintain, each with
//! the parts that it uses, and ends them. They run on a dedicated thread and runtime, which never
//! run a handler's code, so that a handler that never yields delays only itself. No loop depends on
//! this module.

mod admission;
mod overdue;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::acknowledge::Completer;
use crate::cancel;
use crate::claim::quarantine::Quarantine;
use crate::claim::unanswered;
use crate::claim::{Claimer, Dispatcher, LaneSearch, QueueClaimer};
use crate::config::Config;
use crate::consumer::{ConsumerContext, Settled};
use crate::error::{Error, ErrorKind};
use crate::heartbeat::{self, HeartbeatParts};
use crate::identity::Registration;
use crate::maintenance::Maintenance;
use crate::metrics::RunHistograms;
use crate::notifier::{self, Notifier};
use crate::parts::admission::Admission;
use crate::parts::failing_endpoints::FailingEndpoints;
use crate::parts::gate::Gate;
use crate::parts::notifications::Notifications;
use crate::parts::oldest_unanswered::OldestUnanswered;
use crate::parts::outstanding::Outstanding;
use crate::parts::pulse::Pulse;
use crate::parts::queue::{QueueState, Queues};
use crate::parts::watched::TaskSupervisor;
use crate::periodic::Periodic;
use crate::stats::{self, Stats};
use crate::store::copied_database::Site;
use crate::store::reconnecting::{self, ReconnectingClient};
use crate::store::session::Listen;

/// The parts and settings with which a process starts.
pub(crate) struct Start {
    pub(crate) pool: Pool,
    pub(crate) config: Config,
    pub(crate) queues: Vec<Arc<QueueState>>,
    pub(crate) listen: Option<Listen>,
    pub(crate) site: Arc<Site>,
    /// Written once this process may work the store.
    pub(crate) periodic: Vec<Periodic>,
    pub(crate) admission: Arc<Admission>,
    /// The answers to heartbeats, for the health of the worker.
    pub(crate) owed: Arc<OldestUnanswered>,
    pub(crate) failing: Arc<FailingEndpoints>,
    pub(crate) stop: CancellationToken,
}

/// Runs the loops on the calling thread until they were stopped and all jobs are settled, or the
/// deadline has passed.
pub(crate) fn run(mut start: Start) -> Result<(), Error> {
    let periodic = std::mem::take(&mut start.periodic);
    let (process, settled) = Process::new(start);
    process.run(settled, periodic)
}

/// The parts that are needed to start and to end the loops. No loop gets all of them.
struct Process {
    pool: Pool,
    config: Arc<Config>,
    queues: Queues,
    listen: Option<Listen>,
    site: Arc<Site>,
    admission: Arc<Admission>,
    /// Dropped last, because that closes the channel of outcomes.
    claimer: Arc<Claimer>,
    /// The connection for polls, which change no job.
    polls: Arc<ReconnectingClient>,
    notifications: Arc<Notifications>,
    /// Counts of outcomes that are not flushed yet.
    stats: Arc<Stats>,
    owed: Arc<OldestUnanswered>,
    failing: Arc<FailingEndpoints>,
    pulse: Arc<Pulse>,
    watched: TaskSupervisor,
    ends: Ends,
}

/// Tokens that are cancelled after the claims have ended, in this order.
#[derive(Default)]
struct Ends {
    /// The deadline has passed: acknowledgements are no longer retried.
    hopeless: CancellationToken,
    /// No jobs run any more: the consumers' background tasks end.
    ended: CancellationToken,
    /// All jobs are settled: the loops end.
    stopped: CancellationToken,
}

impl Process {
    fn new(start: Start) -> (Self, UnboundedReceiver<Settled>) {
        let (settle, settled) = unbounded_channel();
        let line = |patience| {
            let site = Arc::clone(&start.site);
            Arc::new(ReconnectingClient::new(start.pool.clone(), patience, site))
        };
        let (claims, polls) = (
            line(reconnecting::WORK_TIMEOUT),
            line(reconnecting::POLL_TIMEOUT),
        );
        let queues: Queues = start.queues.into();
        let consumers = Arc::clone(&queues);
        let registration = Registration::new(
            Arc::clone(&claims),
            start.config.name.clone(),
            queues.iter().map(|queue| Arc::clone(&queue.name)).collect(),
            start.config.rescue_after,
            move || {
                consumers
                    .iter()
                    .for_each(|queue| queue.consumer.worker_lost())
            },
        );
        let in_hand = Arc::new(Outstanding::default());
        let claimer = Claimer {
            link: claims,
            registration: Arc::new(registration),
            gate: Gate::default(),
            unanswered: Arc::default(),
            dispatcher: Dispatcher { in_hand, settle },
            stopping: start.stop.clone(),
        };
        let process = Self {
            pool: start.pool,
            config: Arc::new(start.config),
            queues,
            listen: start.listen,
            site: start.site,
            admission: start.admission,
            claimer: Arc::new(claimer),
            polls,
            notifications: Arc::default(),
            stats: Arc::default(),
            owed: start.owed,
            failing: start.failing,
            pulse: Arc::default(),
            watched: TaskSupervisor::new(start.stop),
            ends: Ends::default(),
        };
        (process, settled)
    }

    fn run(
        self,
        settled: UnboundedReceiver<Settled>,
        periodic: Vec<Periodic>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::from(ErrorKind::Ended(error.to_string()));
        // The heartbeat ends with this function on every path: a later one would keep the jobs from
        // being rescued.
        let _stopped = self.ends.stopped.clone().drop_guard();
        let heartbeat = HeartbeatParts {
            registration: Arc::clone(&self.claimer.registration),
            config: Arc::clone(&self.config),
            owed: Arc::clone(&self.owed),
            failing: Arc::clone(&self.failing),
            pulse: Arc::clone(&self.pulse),
            doubted: Arc::clone(&self.claimer.unanswered.doubted),
            admission: Arc::clone(&self.admission),
            site: Arc::clone(&self.site),
            stopped: self.ends.stopped.clone(),
        };
        let beats = heartbeat::start(heartbeat, self.watched.clone(), self.pool.clone());
        let beats = beats.map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        runtime.block_on(async {
            self.spawn("pulse", self.report_progress());
            self.start_acknowledging(settled);
            self.wait_for_site(periodic).await;
            let claiming = self.start_claiming().await;
            self.spawn_watchers();
            let attending = self.spawn_consumer_tasks();
            self.start_maintenance();
            self.claimer.stopping.cancelled().await;
            stop::stop(&self, claiming, attending).await;
        });
        runtime.shutdown_background();
        beats
            .join()
            .map_err(|_| ErrorKind::Ended("the heartbeat thread panicked".into()))?;
        match self.watched.failure() {
            Some(what) => Err(ErrorKind::Ended(what.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Returns a connection for one loop.
    fn connection(&self, patience: Duration) -> ReconnectingClient {
        ReconnectingClient::new(self.pool.clone(), patience, Arc::clone(&self.site))
    }

    /// Shows the heartbeat that this thread makes progress: if its log or a consumer blocks it, it
    /// is to lose its jobs.
    fn report_progress(&self) -> impl Future<Output = ()> + Send + use<> {
        let (pulse, stopped) = (Arc::clone(&self.pulse), self.ends.stopped.clone());
        let every = self.config.heartbeat_interval;
        async move {
            while !stopped.is_cancelled() {
                pulse.beat();
                tokio::select! {
                    () = tokio::time::sleep(every) => {}
                    () = stopped.cancelled() => {}
                }
            }
        }
    }

    fn spawn(&self, name: &str, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.watched.task(name, task));
    }

    fn start_acknowledging(&self, settled: UnboundedReceiver<Settled>) {
        let in_hand = &self.claimer.dispatcher.in_hand;
        let completer = Completer {
            link: self.connection(reconnecting::WORK_TIMEOUT),
            repeats: self.connection(reconnecting::WORK_TIMEOUT),
            queues: Arc::clone(&self.queues),
            in_hand: Arc::clone(in_hand),
            stats: Arc::clone(&self.stats),
            notifications: Arc::clone(&self.notifications),
            runs: RunHistograms::default(),
            watched: self.watched.clone(),
            hopeless: self.ends.hopeless.clone(),
        };
        let acknowledging = Arc::new(completer).run(settled);
        let acknowledging = self.watched.task("acknowledge", acknowledging);
        tokio::spawn(in_hand.settled_by(acknowledging));
    }

    /// Starts the claiming tasks, after reading the lanes that other workers have seen.
    async fn start_claiming(&self) -> JoinSet<()> {
        let missed = Arc::new(Notify::new());
        let lanes = LaneSearch {
            queues: Arc::clone(&self.queues),
            link: Arc::clone(&self.polls),
            missed: Arc::clone(&missed),
            stopping: self.claimer.stopping.clone(),
        };
        lanes.load().await;
        let mut claiming = JoinSet::new();
        for queue in self.queues.iter() {
            let (config, notifications) = (&self.config, &self.notifications);
            let fetcher = QueueClaimer::new(&self.claimer, queue, config, notifications, &missed);
            let name = format!("claim from {}", queue.name);
            claiming.spawn(self.watched.task(&name, fetcher.run()));
        }
        let quarantine = Quarantine {
            claimer: Arc::clone(&self.claimer),
            queues: Arc::clone(&self.queues),
            looks: Arc::clone(&self.polls),
        };
        claiming.spawn(self.watched.task("quarantine", quarantine.run()));
        self.spawn("discover", lanes.discover());
        claiming
    }

    /// Starts the tasks that wake the others, and those for running jobs.
    fn spawn_watchers(&self) {
        let queues = || Arc::clone(&self.queues);
        let polls = || Arc::clone(&self.polls);
        let in_hand = || Arc::clone(&self.claimer.dispatcher.in_hand);
        let stopping = || self.claimer.stopping.clone();
        let stopped = || self.ends.stopped.clone();
        let longest = self.config.poll_interval;
        let watch = notifier::watch::run(queues(), polls(), longest, stopping());
        self.spawn("sleep", watch);
        if let Some(listen) = &self.listen {
            let notifier = Notifier {
                queues: queues(),
                notifications: Arc::clone(&self.notifications),
                polls: polls(),
                listen: Arc::clone(listen),
                stopping: stopping(),
            };
            self.spawn("notifier", notifier.run());
        }
        let cancel = cancel::run(queues(), in_hand(), polls(), stopped());
        self.spawn("cancel", cancel);
        let stats = stats::write_until_stopped(Arc::clone(&self.stats), polls(), stopped());
        self.spawn("stats", stats);
        self.spawn(
            "watch",
            overdue::check_overdue(queues(), in_hand(), stopped()),
        );
    }

    /// Starts the consumers' background tasks.
    fn spawn_consumer_tasks(&self) -> JoinSet<()> {
        // The shared connection of these tasks; opened on demand.
        let link = Arc::new(self.connection(reconnecting::MAX_TIMEOUT));
        let mut attending = JoinSet::new();
        for queue in self.queues.iter() {
            let context = ConsumerContext {
                queue: Arc::clone(&queue.name),
                registration: Arc::clone(&self.claimer.registration),
                link: Arc::clone(&link),
                rescue_after: self.config.rescue_after,
                ended: self.ends.ended.clone(),
            };
            if let Some(task) = queue.consumer.background_task(context) {
                let name = format!("consumer of {}", queue.name);
                attending.spawn(self.watched.task(&name, task));
            }
        }
        attending
    }

    fn start_maintenance(&self) {
        let returning = unanswered::give_back(
            Arc::clone(&self.claimer.unanswered),
            self.connection(reconnecting::WORK_TIMEOUT),
            self.ends.stopped.clone(),
        );
        self.spawn("return claims", returning);
        if self.config.maintenance {
            let maintenance = Maintenance {
                config: Arc::clone(&self.config),
                registration: Arc::clone(&self.claimer.registration),
                notifications: Arc::clone(&self.notifications),
                link: self.connection(reconnecting::PROMOTER_TIMEOUT),
                duties: self.connection(reconnecting::MAX_TIMEOUT),
                stopping: self.claimer.stopping.clone(),
            };
            self.spawn("maintenance", maintenance.run());
        }
    }
}

#[cfg(test)]
mod tests;
