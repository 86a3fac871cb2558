//! `posthaste work`: a worker with the handlers of its arguments, until it is stopped.

use std::future::pending;

use anyhow::Context as _;

use crate::database::Database;
use crate::handlers::HandlerOptions;
use crate::observe::ListenOptions;
use crate::sandbox;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, Settings, StopGrace};

/// Run jobs with commands (--exec) or HTTP requests (--http)
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    handlers: HandlerOptions,

    #[command(flatten)]
    patience: StopGrace,

    #[command(flatten)]
    listen: ListenOptions,

    /// Print which jobs would be run, without running them or changing the database; works on a
    /// copy of a database too
    #[arg(long)]
    sandbox: bool,
}

impl Arguments {
    /// Fails if there is no handler. Called before the database is opened.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.handlers.require("posthaste work")
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    if arguments.sandbox {
        return sandbox::work(&arguments.handlers, database, terminal, signals).await;
    }
    let handlers = arguments.handlers.open()?;
    // A database that is unreachable at the start is an error; a connection that is lost later is
    // reopened.
    drop(database.address().connect().await?);
    let served = arguments.listen.serve(None, terminal).await?;
    let settings = Settings {
        served,
        ..Settings::new(arguments.patience).with_handlers(handlers)
    };
    let worker = worker::start(database.address(), settings)
        .await
        .context("the worker did not start")?;
    let queues = worker.queues_text().unwrap_or_default();
    let text = format!("working on {queues}; Ctrl-C stops");
    terminal.report_event("working", &text, &worker.queues_json())?;
    worker.run_until(pending(), database, signals).await
}
