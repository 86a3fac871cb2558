//! The worker of `up`, `work`, `relay` and `sync`, with the handlers that this program ships.

use std::time::Duration;

use anyhow::anyhow;
use deadpool_postgres::Pool;
use posthaste::relay::Relay;
use posthaste::sync::IndexSync;
use posthaste::{Config, Outcome, QueueConfig, Worker, WorkerHandle};

use crate::commands::up;
use crate::commands::work::outside::Outside;
use crate::connect::Address;
use crate::database::Database;
use crate::signals::Signals;

/// A file of a terabyte takes its time; a handler that hangs is no concern of the ones shipped here.
const TIMEOUT: Duration = Duration::from_secs(3_600);
/// Handlers hold a connection for two short moments, so fewer than run at once are enough.
const HANDLER_CONNECTIONS: usize = 16;

/// Which queues, how wide, and how patient.
pub(crate) struct Settings {
    pub(crate) queues: Vec<(String, u16)>,
    pub(crate) patience: Patience,
    pub(crate) outside: Outside,
    /// Relays, with the queues that they send.
    pub(crate) relays: Vec<(String, Relay)>,
    /// Syncs, with the queues of their tables.
    pub(crate) syncs: Vec<(String, IndexSync)>,
}

impl Settings {
    /// Nothing to work on yet.
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            patience,
            queues: Vec::new(),
            outside: Outside::default(),
            relays: Vec::new(),
            syncs: Vec::new(),
        }
    }
}

/// How long a worker waits for others, and others for it.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Patience {
    /// Seconds that running jobs get to end after the first signal
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,

    /// Seconds without a sign of life after which a worker counts as dead; the same for all
    /// workers of a database
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    rescue_after: u64,

    /// Look for jobs ten times a second instead of being told of them: where DATABASE_URL leads
    /// to a pooler in transaction mode, or sessions are few
    #[arg(long)]
    no_bell: bool,
}

/// A worker at work.
pub(crate) struct Running {
    handle: WorkerHandle,
    handlers: Pool,
    queues: String,
}

impl Running {
    /// The queues it works on, for a person.
    pub(crate) fn queues(&self) -> &str {
        &self.queues
    }

    /// Completes when the worker has ended by itself: why.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.handle.ended().await {
            Ok(()) => anyhow!("the worker has ended"),
            Err(error) => error.into(),
        }
    }

    /// Goes on until it is told to stop, until something is wrong, or until `empty` completes; then stops in good order.
    pub(crate) async fn run_until(
        mut self,
        empty: impl Future<Output = anyhow::Result<()>>,
        database: &Database,
        signals: &Signals,
    ) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            () = signals.stop().cancelled() => Ok(()),
            error = database.gone() => Err(error),
            error = self.ended() => Err(error),
            empty = empty => empty,
        };
        let stopped = self.stop().await;
        outcome.and(stopped)
    }

    /// Stops claiming, waits for what runs, gives back what does not end in time.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let stopped = self.handle.stop().await;
        self.handlers.close();
        Ok(stopped?)
    }
}

pub(crate) async fn start(address: &Address, settings: Settings) -> anyhow::Result<Running> {
    let handlers = address.pool(HANDLER_CONNECTIONS)?;
    let pool = handlers.clone();
    let mut builder = Worker::builder(address.pool(1)?).config(settings.patience.config());
    if !settings.queues.is_empty() {
        builder = builder
            .handler("posthaste.noop", |_context, _job| async {
                Ok(Outcome::Done)
            })
            .handler("file.digest", move |context, job| {
                up::handler::file_digest(pool.clone(), context, job)
            });
    }
    if !settings.patience.no_bell {
        builder = address.ring_for(builder);
    }
    let timeout = TIMEOUT.max(settings.outside.patience());
    builder = settings.outside.add_to(builder);
    for (name, concurrency) in &settings.queues {
        let queue = QueueConfig::new(name, usize::from(*concurrency));
        builder = builder.queue_config(QueueConfig { timeout, ..queue });
    }
    for (queue, relay) in settings.relays {
        builder = builder.consumer(queue, relay);
    }
    for (queue, sync) in settings.syncs {
        builder = builder.consumer(queue, sync);
    }
    let names: Vec<&str> = settings
        .queues
        .iter()
        .map(|(queue, _)| queue.as_str())
        .collect();
    let handle = builder.start().await?;
    let queues = format!(
        "queue{} {}",
        if names.len() > 1 { "s" } else { "" },
        names.join(", ")
    );
    Ok(Running {
        handle,
        handlers,
        queues,
    })
}

impl Patience {
    /// The same for another program: all workers of a database are to be alike.
    pub(crate) fn as_typed(self) -> Vec<String> {
        let mut typed = vec![
            format!("--grace={}", self.grace),
            format!("--rescue-after={}", self.rescue_after),
        ];
        typed.extend(self.no_bell.then(|| "--no-bell".to_owned()));
        typed
    }

    fn config(self) -> Config {
        let rescue_after = Duration::from_secs(self.rescue_after);
        let usual = Config::default();
        Config {
            name: format!("posthaste, process {}", std::process::id()),
            shutdown_grace: Duration::from_secs(self.grace),
            heartbeat_interval: usual.heartbeat_interval.min(rescue_after / 6),
            rescue_after,
            ..usual
        }
    }
}
