//! `posthaste console`: the web console.

use crate::database::Database;
use crate::elastic::ServerOptions;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::web::WebOptions;

/// Serve the web console until Ctrl-C; read-only and reachable only from this machine unless
/// options or [console] in posthaste.toml allow more
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: WebOptions,

    #[command(flatten)]
    place: ServerOptions,
}

impl Arguments {
    /// Fails if the options contradict each other. Called before the database is opened.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.options()?.check()
    }

    /// Returns the options of the command line, completed by those of the file.
    fn options(&self) -> anyhow::Result<WebOptions> {
        let file = WebOptions::from_file(self.place.file()?)?;
        Ok(self.options.clone().or_from_file(file.unwrap_or_default()))
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let options = arguments.options()?;
    let console = options.open_console(&arguments.place, database.address(), terminal)?;
    // A database that is unreachable at the start is an error; a connection that is lost later is
    // reopened.
    let client = database.address().connect().await?;
    posthaste::check_schema(&client).await?;
    drop(client);
    let served = console.listen(terminal, "; Ctrl-C stops").await?;
    tokio::select! {
        () = served => Ok(()),
        () = signals.stop_token().cancelled() => Ok(()),
        error = database.wait_until_gone() => Err(error),
    }
}
