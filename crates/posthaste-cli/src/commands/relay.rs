//! `posthaste relay`: sends jobs to the destinations of posthaste.toml.

mod misrouted;
mod once;
mod preview;
mod run;

use std::path::PathBuf;

use clap::Subcommand;
use posthaste_relay::Route;

use crate::database::Database;
use crate::file::DEFAULT_FILE;
use crate::routes;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Send jobs to other systems as configured in posthaste.toml, in the formats of Sidekiq and others
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Preview(preview::Arguments),
}

/// Routes of a file.
#[derive(clap::Args)]
struct RouteSelection {
    /// Names of routes (default: all in the file)
    #[arg(value_name = "ROUTE")]
    routes: Vec<String>,

    /// File that defines routes
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
}

impl Arguments {
    /// Whether the command runs until it is stopped.
    pub(crate) fn is_long_running(&self) -> bool {
        matches!(&self.command, Command::Run(run) if run.is_long_running())
    }

    /// Whether the command needs a graceful stop: it must release its claimed jobs.
    pub(crate) fn needs_graceful_stop(&self) -> bool {
        matches!(self.command, Command::Run(_))
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Run(arguments) => run::run(arguments, database, terminal, signals).await,
        Command::Preview(arguments) => preview::run(arguments, database, terminal).await,
    }
}

impl RouteSelection {
    /// Reads the selected routes.
    fn read(&self) -> anyhow::Result<Vec<Route>> {
        routes::read(&self.config, &self.routes)
    }
}
