//! `posthaste up`: from nothing to a running system for one's own jobs.

use std::future::pending;
use std::path::Path;

use anyhow::Context as _;

use crate::database::Database;
use crate::file::{self, FILE};
use crate::handlers::Handlers;
use crate::observe::{Asked, Collector, Listen, Served};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, Patience, Settings};
use crate::{routes, syncs};

/// Run everything for your own jobs: a private Postgres if no database is given, the schema, the
/// relays and syncs of a posthaste.toml if there is one, and a worker if --exec or --http is given
// The demo takes these too, and two groups of one name cannot be.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    #[command(flatten)]
    handlers: Handlers,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    listen: Listen,
}

impl Arguments {
    /// Whether the options fit together; asked before a database is.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.handlers.require_for_queues()
    }

    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    /// Metrics of the process, and of the database.
    async fn serve(
        &self,
        database: &Database,
        terminal: &Terminal,
    ) -> anyhow::Result<Option<Served>> {
        let collector = Collector::new(database.address().clone(), Asked::default());
        self.listen.serve(Some(collector), terminal).await
    }

    /// Installs the schema and begins what the arguments and the file say; tells of each.
    pub(crate) async fn prepare(
        &self,
        database: &Database,
        terminal: &Terminal,
    ) -> anyhow::Result<Settings> {
        tell_of_private(database, terminal);
        let handlers = self.handlers.open()?;
        let file = file::read(Path::new(FILE))?.unwrap_or_default();
        let mut client = database.address().connect().await?;
        posthaste::migrate(&mut client).await?;
        let relays = routes::start(file.routes, database.address()).await?;
        for one in &relays {
            terminal.note(&one.to_string());
        }
        let syncs = syncs::start(file.tables, database.address(), None).await?;
        for one in &syncs {
            terminal.note(&one.to_string());
        }
        let relays = relays.into_iter().map(|one| (one.queue, one.relay));
        let settings = Settings {
            relays: relays.collect(),
            syncs: syncs.into_iter().flat_map(|one| one.syncs).collect(),
            ..Settings::new(self.patience)
        };
        Ok(settings.with(handlers))
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let prepared = arguments.prepare(database, terminal).await?;
    let served = arguments.serve(database, terminal).await?;
    let settings = Settings { served, ..prepared };
    if settings.is_idle() {
        terminal.note(&format!(
            "jobs wait: no handler was given (--exec, --http), and there is no {FILE} with a route or a sync; Ctrl-C stops"
        ));
        return tokio::select! {
            () = signals.stop().cancelled() => Ok(()),
            error = database.gone() => Err(error),
            () = say_well(settings.served.as_ref()) => Ok(()),
        };
    }
    let worker = worker::start(database.address(), settings)
        .await
        .context("the worker did not start")?;
    terminal.note(&match worker.queues() {
        Some(queues) => format!("working on {queues}; Ctrl-C stops"),
        None => {
            "only routes and syncs take jobs: no handler was given (--exec, --http); Ctrl-C stops"
                .to_owned()
        }
    });
    worker.run_until(pending(), database, signals).await
}

/// Without a worker nobody else says that all goes well.
async fn say_well(served: Option<&Served>) {
    match served {
        Some(served) => served.say_well().await,
        None => pending().await,
    }
}

/// Where the Postgres is that was started, and how programs reach it.
fn tell_of_private(database: &Database, terminal: &Terminal) {
    let Some(private) = database.private() else {
        return;
    };
    let verb = match private.adopted() {
        true => "runs already",
        false => "started",
    };
    let (place, folder) = (private.address().place(), private.folder().display());
    terminal.note(&format!(
        "private Postgres {verb}: {place}, data in {folder}; for programs: DATABASE_URL=$(cat {folder}/url)"
    ));
}
