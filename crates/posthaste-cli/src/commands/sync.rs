//! `posthaste sync`: keeps indexes equal to the tables of posthaste.toml.

mod audit;
pub(crate) mod behind;
mod install;
mod rebuild;
mod reindex;
mod run;
mod search;

pub(super) use run::wait_until_visible;

use clap::Subcommand;

use crate::database::Database;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Keep search indexes in sync with tables, as configured in posthaste.toml
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Install(install::Arguments),
    Reindex(reindex::Arguments),
    Audit(audit::Arguments),
    Rebuild(rebuild::Arguments),
    Search(search::Arguments),
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
        Command::Install(arguments) => install::run(arguments, database, terminal).await,
        Command::Reindex(arguments) => reindex::run(arguments, database, terminal).await,
        Command::Audit(arguments) => audit::run(arguments, database, terminal).await,
        Command::Rebuild(arguments) => rebuild::run(arguments, database, terminal).await,
        Command::Search(arguments) => search::run(arguments, database, terminal).await,
    }
}
