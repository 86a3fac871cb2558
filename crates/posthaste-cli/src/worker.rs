//! The worker of `up`, `demo`, `work`, `relay run` and `sync run`.

use std::time::Duration;

use anyhow::anyhow;
use posthaste::{Config, QueueConfig, Worker, WorkerBuilder, WorkerHandle};
use posthaste_relay::Relay;
use posthaste_sync::IndexSync;
use serde::Serialize;

use crate::connect::Address;
use crate::database::Database;
use crate::handlers::OpenHandlers;
use crate::observe::MetricsServer;
use crate::options::{parse_duration, parse_duration_between};
use crate::signals::Signals;
use crate::site;

/// A function that adds handlers to a worker.
pub(crate) type AddHandlers = Box<dyn FnOnce(WorkerBuilder) -> WorkerBuilder + Send>;

/// The queues and handlers of a worker, and its timeouts.
pub(crate) struct Settings {
    pub(crate) patience: StopGrace,
    pub(crate) queues: Vec<QueueConfig>,
    pub(crate) handlers: Vec<AddHandlers>,
    /// Relays with their queues.
    pub(crate) relays: Vec<(String, Relay)>,
    /// Syncs with the queues of their tables.
    pub(crate) syncs: Vec<(String, IndexSync)>,
    /// The server to which the worker reports its status.
    pub(crate) served: Option<MetricsServer>,
}

impl Settings {
    /// Returns settings without queues.
    pub(crate) fn new(patience: StopGrace) -> Self {
        Self {
            patience,
            queues: Vec::new(),
            handlers: Vec::new(),
            relays: Vec::new(),
            syncs: Vec::new(),
            served: None,
        }
    }

    /// Adds these handlers with their queues.
    pub(crate) fn with_handlers(self, mut handlers: OpenHandlers) -> Self {
        let queues = std::mem::take(&mut handlers.queues);
        queues
            .into_iter()
            .fold(self, Self::queue)
            .handlers(|builder| handlers.add_to(builder))
    }

    /// Adds a queue.
    pub(crate) fn queue(mut self, queue: QueueConfig) -> Self {
        self.queues.push(queue);
        self
    }

    /// Adds handlers.
    pub(crate) fn handlers(
        mut self,
        add: impl FnOnce(WorkerBuilder) -> WorkerBuilder + Send + 'static,
    ) -> Self {
        self.handlers.push(Box::new(add));
        self
    }

    /// Whether the worker has no queues, relays or syncs.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.is_empty() && self.relays.is_empty() && self.syncs.is_empty()
    }
}

/// How long a worker waits for others, and others for it.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct StopGrace {
    /// Time for running jobs to finish after the first signal
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    grace: Duration,

    /// Time without a heartbeat after which a worker counts as dead; must be the same for all
    /// workers of a database
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = parse_duration_between(2, 86_400)
    )]
    rescue_after: Duration,

    /// Poll for jobs ten times a second instead of using notifications; for a pooler in transaction
    /// mode, or to save a session
    #[arg(long)]
    no_notify: bool,
}

/// The queues of a worker as JSON.
#[derive(Serialize)]
pub(crate) struct WorkingQueues<'a> {
    /// Queues with handlers.
    queues: &'a [String],
}

/// A running worker.
pub(crate) struct RunningWorker {
    handle: WorkerHandle,
    queues: Vec<String>,
    served: Option<MetricsServer>,
}

impl RunningWorker {
    /// Returns the queues with handlers as text.
    pub(crate) fn queues_text(&self) -> Option<String> {
        let plural = if self.queues.len() > 1 { "s" } else { "" };
        let names = self.queues.join(", ");
        (!names.is_empty()).then(|| format!("queue{plural} {names}"))
    }

    /// Returns the queues with handlers as JSON.
    pub(crate) fn queues_json(&self) -> WorkingQueues<'_> {
        let queues = &self.queues;
        WorkingQueues { queues }
    }

    /// Completes with the reason when the worker has ended without being stopped. Reports its
    /// status until then.
    pub(crate) async fn wait_for_end(&mut self) -> anyhow::Error {
        let mut ticks = MetricsServer::report_interval();
        loop {
            tokio::select! {
                ended = self.handle.ended() => match ended {
                    Ok(()) => return anyhow!("the worker has ended"),
                    Err(error) => return error.into(),
                },
                _ = ticks.tick(), if self.served.is_some() => self.report_status(),
            }
        }
    }

    fn report_status(&self) {
        if let Some(served) = &self.served {
            served.report_status(self.handle.unanswered_for(), self.handle.refused());
        }
    }

    /// Runs until it is signalled, until an error, or until `empty` completes; then stops
    /// gracefully.
    pub(crate) async fn run_until(
        mut self,
        empty: impl Future<Output = anyhow::Result<()>>,
        database: &Database,
        signals: &Signals,
    ) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            () = signals.stop_token().cancelled() => Ok(()),
            error = database.wait_until_gone() => Err(error),
            error = self.wait_for_end() => Err(error),
            empty = empty => empty,
        };
        let stopped = self.stop().await;
        outcome.and(stopped)
    }

    /// Stops claiming, waits for running jobs, and releases those that exceed the grace period.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        Ok(self.handle.stop().await?)
    }
}

pub(crate) async fn start(address: &Address, settings: Settings) -> anyhow::Result<RunningWorker> {
    let database = match settings.patience.no_notify {
        true => address.database().without_notifier(),
        false => address.database(),
    };
    let mut builder = Worker::builder(database).config(settings.patience.config());
    if let Some(site) = site::configured_site(address)? {
        builder = builder.site(site);
    }
    for add in settings.handlers {
        builder = add(builder);
    }
    let queues = (settings.queues.iter()).map(|queue| queue.name.clone());
    let queues = queues.collect();
    for queue in settings.queues {
        builder = builder.queue_config(queue);
    }
    for (queue, relay) in settings.relays {
        builder = builder.consumer(queue, relay);
    }
    for (queue, sync) in settings.syncs {
        builder = builder.consumer(queue, sync);
    }
    let handle = builder.start().await?;
    Ok(RunningWorker {
        handle,
        queues,
        served: settings.served,
    })
}

/// Returns the name of the worker: host, version and process id. In containers the process id alone
/// is always the same.
fn worker_name() -> String {
    let (version, process) = (env!("CARGO_PKG_VERSION"), std::process::id());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok());
    match host
        .as_deref()
        .map(str::trim)
        .filter(|host| !host.is_empty())
    {
        Some(host) => format!("{host}, posthaste {version}, process {process}"),
        None => format!("posthaste {version}, process {process}"),
    }
}

impl StopGrace {
    /// Returns the options for another process: all workers of a database must have the same.
    pub(crate) fn as_options(self) -> Vec<String> {
        let mut typed = vec![
            format!("--grace={}s", self.grace.as_secs()),
            format!("--rescue-after={}s", self.rescue_after.as_secs()),
        ];
        typed.extend(self.no_notify.then(|| "--no-notify".to_owned()));
        typed
    }

    fn config(self) -> Config {
        let rescue_after = self.rescue_after;
        let usual = Config::default();
        Config {
            name: worker_name(),
            shutdown_grace: self.grace,
            heartbeat_interval: usual.heartbeat_interval.min(rescue_after / 6),
            rescue_after,
            ..usual
        }
    }
}
