//! `posthaste work`: a worker with the built-in handlers and those of its arguments, until it is told to stop.

pub(crate) mod outside;

use anyhow::Context as _;

use crate::database::Database;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, Patience, Settings};

/// Work on jobs with commands, over HTTP, and with the built-in handlers (file.digest, posthaste.noop)
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A queue to work on and how many of its jobs run at once; may be given many times
    #[arg(
        long = "queue",
        value_name = "NAME[=N]",
        value_parser = queue,
        default_values = ["default=32", "file=32"]
    )]
    queues: Vec<(String, u16)>,

    #[command(flatten)]
    outside: outside::Handlers,

    #[command(flatten)]
    patience: Patience,
}

const CONCURRENCY: u16 = 32;

fn queue(text: &str) -> Result<(String, u16), String> {
    let (name, concurrency) = text.split_once('=').unwrap_or((text, ""));
    if name.is_empty() {
        return Err("a queue needs a name".to_owned());
    }
    match concurrency {
        "" if name.len() == text.len() => Ok((name.to_owned(), CONCURRENCY)),
        number => match number.parse() {
            Ok(number @ 1..=1_000) => Ok((name.to_owned(), number)),
            _ => Err(format!("\"{number}\" is not a number from 1 to 1000")),
        },
    }
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let outside = arguments.outside.open()?;
    // A database that cannot be reached at the start is a mistake to be told; one that is lost
    // later comes back.
    database.address().connect().await?;
    let settings = Settings {
        queues: arguments.queues.clone(),
        outside,
        ..Settings::new(arguments.patience)
    };
    let mut worker = worker::start(database.address(), settings)
        .await
        .context("the worker did not start")?;
    terminal.note(&format!("working on {}; Ctrl-C stops", worker.queues()));
    let outcome = tokio::select! {
        () = signals.stop().cancelled() => Ok(()),
        error = database.gone() => Err(error),
        error = worker.ended() => Err(error),
    };
    let stopped = worker.stop().await;
    outcome.and(stopped)
}

#[cfg(test)]
mod tests {
    use super::queue;

    #[test]
    fn a_queue_is_a_name_and_perhaps_a_width() {
        assert_eq!(queue("mail"), Ok(("mail".to_owned(), 32)));
        assert_eq!(queue("mail=4"), Ok(("mail".to_owned(), 4)));
        for wrong in ["", "=4", "mail=", "mail=0", "mail=x"] {
            assert!(queue(wrong).is_err(), "{wrong}");
        }
    }
}
