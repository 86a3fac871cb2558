//! `posthaste up`: starts a complete system for a user's own jobs.

use std::future::pending;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use posthaste_capture::Until;
use serde_json::json;

use crate::database::Database;
use crate::elastic::ServerOptions;
use crate::file::{self, DEFAULT_FILE, File, NeededSections};
use crate::handlers::HandlerOptions;
use crate::observe::{Collector, ExtraLabels, ListenOptions, MetricsServer};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::web::{Console, WebOptions};
use crate::worker::{self, Settings, StopGrace};
use crate::{captures, routes, syncs, transaction_watch};

/// Run everything: a private Postgres if no database is given, the schema, the relays, syncs and
/// captures of posthaste.toml, and a worker if --exec or --http is given
// The demo flattens these arguments too, and clap allows no two groups of one name.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Arguments {
    /// File that defines routes, captures and synced tables (default: posthaste.toml, if it exists)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    handlers: HandlerOptions,

    #[command(flatten)]
    patience: StopGrace,

    #[command(flatten)]
    listen: ListenOptions,

    /// Also serve the web console at this address (default: as configured in [console] of the file)
    #[arg(long, value_name = "ADDRESS")]
    console: Option<SocketAddr>,
}

impl Arguments {
    /// Fails if the options contradict each other. Called before the database is opened.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.handlers.require_for_queues()
    }

    pub(crate) fn patience(&self) -> StopGrace {
        self.patience
    }

    /// Reads the file; a file named by `--config` must exist.
    fn file(&self) -> anyhow::Result<File> {
        let Some(named) = &self.config else {
            return Ok(
                file::read(Path::new(DEFAULT_FILE), NeededSections::All)?.unwrap_or_default()
            );
        };
        match file::read(named, NeededSections::All)? {
            Some(file) => Ok(file),
            None => bail!("{} does not exist.", named.display()),
        }
    }

    /// Opens the web console, if it is requested.
    fn console(&self, database: &Database, terminal: &Terminal) -> anyhow::Result<Option<Console>> {
        let file = self.config.clone().unwrap_or_else(|| DEFAULT_FILE.into());
        let file_options = WebOptions::from_file(&file)?;
        let options = match self.console.map(WebOptions::listening_at) {
            Some(typed) => typed.or_from_file(file_options.unwrap_or_default()),
            None => match file_options {
                Some(options) => options,
                None => return Ok(None),
            },
        };
        let place = ServerOptions::from_file(self.config.clone());
        let console = options.open_console(&place, database.address(), terminal);
        console.context("the console").map(Some)
    }

    /// Starts the supervisor of long transactions if the file has its section.
    async fn watch_transactions(
        &self,
        database: &Database,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let file = self.config.clone().unwrap_or_else(|| DEFAULT_FILE.into());
        let supervisor =
            transaction_watch::supervisor_in_file(&file, database.address(), terminal)?;
        if let Some(mut supervisor) = supervisor {
            supervisor.check_servers().await?;
            tokio::spawn(supervisor.run_in_background(terminal.clone()));
        }
        Ok(())
    }

    /// Serves the metrics of the process and of the database.
    async fn serve(
        &self,
        database: &Database,
        terminal: &Terminal,
    ) -> anyhow::Result<Option<MetricsServer>> {
        let collector = Collector::new(
            database.address().clone(),
            ExtraLabels::default(),
            crate::thresholds::read()?,
        );
        self.listen.serve(Some(collector), terminal).await
    }

    /// Installs the schema, starts what the arguments and the file configure, and reports each.
    pub(crate) async fn prepare(
        &self,
        database: &Database,
        terminal: &Terminal,
    ) -> anyhow::Result<Settings> {
        print_private_server(database, terminal)?;
        let handlers = self.handlers.open()?;
        let file = self.file()?;
        let console = self.console(database, terminal)?;
        let mut client = database.address().connect().await?;
        posthaste::migrate(&mut client).await?;
        if let Some(console) = console {
            // Runs until the process ends.
            tokio::spawn(console.listen(terminal, "").await?);
        }
        self.watch_transactions(database, terminal).await?;
        let others = !handlers.queues.is_empty() || !file.tables.is_empty();
        let mut relays = routes::start(file.routes, database.address()).await?;
        if !others {
            relays = routes::require_one_usable(relays)?;
        }
        for one in &relays {
            one.print_started(terminal)?;
        }
        let syncs = syncs::start(file.tables, database.address(), None).await?;
        for one in &syncs {
            one.print_started(terminal)?;
        }
        let captures = captures::start(file.captures, database.address(), Until::Stopped)?;
        for one in captures {
            one.print_started(terminal)?;
            // Runs until the process ends, at any time: the next one continues at the last mark.
            tokio::spawn(one.report_end(terminal.clone()));
        }
        let relays = relays.into_iter().map(|one| (one.queue, one.relay));
        let settings = Settings {
            served: self.serve(database, terminal).await?,
            relays: relays.collect(),
            syncs: syncs.into_iter().flat_map(|one| one.syncs).collect(),
            ..Settings::new(self.patience)
        };
        Ok(settings.with_handlers(handlers))
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let settings = arguments.prepare(database, terminal).await?;
    if settings.is_idle() {
        let text = format!(
            "jobs will wait: give a handler (--exec, --http), or a {DEFAULT_FILE} with a route or \
             a sync; Ctrl-C stops"
        );
        terminal.report_event("working", &text, &json!({ "queues": [] }))?;
        return tokio::select! {
            () = signals.stop_token().cancelled() => Ok(()),
            error = database.wait_until_gone() => Err(error),
            () = report_healthy_forever(settings.served.as_ref()) => Ok(()),
        };
    }
    let worker = worker::start(database.address(), settings)
        .await
        .context("the worker did not start")?;
    let text = match worker.queues_text() {
        Some(queues) => format!("working on {queues}; Ctrl-C stops"),
        None => {
            let text = "running routes, captures and syncs only; --exec or --http would run other \
                        jobs; Ctrl-C stops";
            text.to_owned()
        }
    };
    terminal.report_event("working", &text, &worker.queues_json())?;
    worker.run_until(pending(), database, signals).await
}

/// Reports a healthy status for a process without a worker, which would report it otherwise.
async fn report_healthy_forever(served: Option<&MetricsServer>) {
    match served {
        Some(served) => served.report_healthy_forever().await,
        None => pending().await,
    }
}

/// Prints the address of the private Postgres, the folder of its data, and the URL for other
/// programs.
fn print_private_server(database: &Database, terminal: &Terminal) -> anyhow::Result<()> {
    let Some(private) = database.private() else {
        return Ok(());
    };
    let verb = match private.was_running() {
        true => "is already running",
        false => "started",
    };
    let (place, folder) = (
        private.address().host_and_port(),
        private.folder().display(),
    );
    let text = format!(
        "private Postgres {verb}: {place}, data in {folder}; for programs: \
         DATABASE_URL=$(cat {folder}/url)"
    );
    let more = json!({
        "address": place.to_string(), "folder": private.folder(), "adopted": private.was_running(),
    });
    terminal.report_event("database", &text, &more)
}
