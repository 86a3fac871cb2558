//! `posthaste capture`: converts committed changes into jobs, or sends them without jobs, as
//! configured in posthaste.toml.

mod copy;
mod inspect;
mod operate;
mod run;

use clap::Subcommand;

use crate::database::Database;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Capture committed rows and messages and send them, as jobs or directly, as configured in
/// posthaste.toml
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Install(operate::Install),
    Run(run::Arguments),
    Preview(inspect::Preview),
    Status(inspect::Status),
    Gaps(inspect::Gaps),
    Copy(copy::Arguments),
    Pause(operate::Pause),
    Resume(operate::Resume),
    Begin(operate::Begin),
    Skip(operate::Skip),
    Remove(operate::Remove),
}

impl Arguments {
    /// Whether the command runs until it is stopped.
    pub(crate) fn is_long_running(&self) -> bool {
        matches!(&self.command, Command::Run(run) if run.is_long_running())
    }

    /// Whether the command needs a graceful stop: it must write what it has read.
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
        Command::Install(arguments) => operate::install(arguments, database, terminal).await,
        Command::Run(arguments) => run::run(arguments, database, terminal, signals).await,
        Command::Preview(arguments) => inspect::preview(arguments, database, terminal).await,
        Command::Status(_) => inspect::status(database, terminal).await,
        Command::Gaps(arguments) => inspect::gaps(arguments, database, terminal).await,
        Command::Copy(arguments) => copy::copy(arguments, database, terminal).await,
        Command::Pause(arguments) => operate::pause(arguments, database, terminal).await,
        Command::Resume(arguments) => operate::resume(arguments, database, terminal).await,
        Command::Begin(arguments) => operate::begin(arguments, database, terminal).await,
        Command::Skip(arguments) => operate::skip(arguments, database, terminal).await,
        Command::Remove(arguments) => operate::remove(arguments, database, terminal).await,
    }
}
