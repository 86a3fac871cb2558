//! `posthaste relay`: sends jobs to the destinations of posthaste.toml, until it is asked to stop.

mod once;

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use futures_util::future::select_all;
use posthaste_relay::{Route, preview};
use tokio_postgres::Client;

use crate::database::Database;
use crate::file::FILE;
use crate::observe::Listen;
use crate::routes::{self, Started};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, Patience, Settings};

/// Send jobs to where posthaste.toml says: Sidekiq and others, as their own clients would
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The routes to relay; without any, all of the file
    #[arg(value_name = "ROUTE")]
    routes: Vec<String>,

    /// The file that describes the routes
    #[arg(long, value_name = "FILE", default_value = FILE)]
    config: PathBuf,

    /// Show what would be sent for the jobs that wait now, a line of JSON each, and send nothing
    #[arg(long, conflicts_with = "once")]
    dry_run: bool,

    /// With --dry-run: show this many jobs of each route at most
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "dry_run")]
    limit: u32,

    /// End when nothing waits to be sent, or when what is left is for a destination that has taken
    /// nothing for ten seconds; jobs that are not due yet are not waited for
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    listen: Listen,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let routes = chosen(routes::read(&arguments.config)?, &arguments.routes)?;
    let client = database.address().connect().await?;
    if arguments.dry_run {
        return dry_run(&client, &routes, arguments.limit, terminal).await;
    }
    let relays = routes::start(routes, database.address()).await?;
    if let (true, Some(refusal)) = (arguments.once, routes::first_refusal(&relays)) {
        return Err(refusal);
    }
    let settings = Settings {
        relays: relays
            .iter()
            .map(|one| (one.queue.clone(), one.relay.clone()))
            .collect(),
        served: arguments.listen.serve(None, terminal).await?,
        ..Settings::new(arguments.patience)
    };
    let worker = worker::start(database.address(), settings)
        .await
        .context("the relay did not start")?;
    for one in &relays {
        terminal.note(&one.to_string());
    }
    if !arguments.once {
        warn_astray(&client, &relays, terminal).await?;
    }
    terminal.note("Ctrl-C stops");
    let empty = async {
        match arguments.once {
            true => once::until_empty(&client, &relays).await,
            false => std::future::pending().await,
        }
    };
    let over = async {
        tokio::select! {
            empty = empty => empty,
            gone = first_gone(&relays) => Err(gone),
        }
    };
    let ended = worker.run_until(over, database, signals).await;
    if arguments.once {
        let report = once::Report::of(&relays);
        terminal.result(&report, &report)?;
        if ended.is_ok() {
            warn_astray(&client, &relays, terminal).await?;
        }
    }
    ended
}

async fn warn_astray(
    client: &Client,
    relays: &[Started],
    terminal: &Terminal,
) -> anyhow::Result<()> {
    for line in once::astray(client, relays).await? {
        terminal.note(&line);
    }
    Ok(())
}

/// Those that were named.
fn chosen(routes: Vec<Route>, names: &[String]) -> anyhow::Result<Vec<Route>> {
    let known: Vec<String> = routes.iter().map(|route| route.name().to_owned()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!(
            "there is no route {unknown}; there are {}",
            known.join(", ")
        );
    }
    let is_chosen =
        |route: &Route| names.is_empty() || names.iter().any(|name| name == route.name());
    Ok(routes.into_iter().filter(is_chosen).collect())
}

async fn dry_run(
    client: &Client,
    routes: &[Route],
    limit: u32,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    for route in routes {
        let lines = preview(client, route, limit).await?;
        for line in lines {
            terminal.print(&line)?;
        }
    }
    Ok(())
}

/// Completes when one of the destinations will never take anything again: it says which, and why.
/// The one that runs the command mends what it was connected to and runs it again; with other
/// routes gone on with, that one would look as if it were down for a while.
async fn first_gone(relays: &[Started]) -> anyhow::Error {
    let gone = relays.iter().map(|one| {
        Box::pin(async move {
            one.relay.gone().await;
            let reason = one.relay.status().last_error.unwrap_or_default();
            let reason = reason.split(" (os error").next().unwrap_or_default();
            anyhow!(
                "route {}: {} takes nothing any more: {reason}. Its jobs wait; this counts as no attempt",
                one.name,
                one.label
            )
        })
    });
    select_all(gone).await.0
}
