//! `posthaste relay`: sends jobs to the destinations of posthaste.toml, until it is told to stop.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use futures_util::future::select_all;
use posthaste::relay::{Route, preview};
use serde::Serialize;
use tokio_postgres::Client;

use crate::database::Database;
use crate::file::FILE;
use crate::routes::{self, Started};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::worker::{self, Patience, Settings};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A job that found its destination down is put off for a second, and waits nowhere until then.
const PUT_OFF: Duration = Duration::from_secs(2);

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

    /// With --dry-run: show so many jobs of each route at most
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "dry_run")]
    limit: u32,

    /// End when nothing waits to be sent; jobs that are not due yet are not waited for
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    patience: Patience,
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
    let settings = Settings {
        relays: relays
            .iter()
            .map(|one| (one.queue.clone(), one.relay.clone()))
            .collect(),
        ..Settings::new(arguments.patience)
    };
    let worker = worker::start(database.address(), settings)
        .await
        .context("the relay did not start")?;
    for one in &relays {
        terminal.note(&one.to_string());
    }
    terminal.note("Ctrl-C stops");
    let empty = async {
        match arguments.once {
            true => until_empty(&client, &relays).await,
            false => std::future::pending().await,
        }
    };
    let over = async {
        tokio::select! {
            empty = empty => empty,
            gone = first_gone(&relays) => Err(gone),
        }
    };
    worker.run_until(over, database, signals).await?;
    if arguments.once {
        let report = Report(relays.iter().map(Sent::new).collect());
        terminal.result(&report, &report)?;
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
        let lines = preview(client, route.queue(), route.mapping(), limit).await?;
        for line in lines {
            terminal.print(&line)?;
        }
    }
    Ok(())
}

/// Completes when one of the destinations will never take anything again: it says which, and why. Whoever runs the command mends what it was connected to and runs it again; with other routes
/// gone on with, that one would look as if it were down for a while.
async fn first_gone(relays: &[Started]) -> anyhow::Error {
    let gone = relays.iter().map(|one| {
        Box::pin(async move {
            one.relay.gone().await;
            let reason = one.relay.status().last_error.unwrap_or_default();
            let reason = reason.split(" (os error").next().unwrap_or_default();
            anyhow!(
                "route {}: {} takes nothing any more: {reason}. Its jobs wait; no attempt was burnt",
                one.name,
                one.label
            )
        })
    });
    select_all(gone).await.0
}

/// Completes when no job of the routes waits or is under way.
async fn until_empty(client: &Client, relays: &[Started]) -> anyhow::Result<()> {
    let mut empty_since: Option<Instant> = None;
    loop {
        let counters = posthaste::counters(client).await?;
        let of_ours = |queue: &str| relays.iter().any(|one| one.queue == queue);
        let ours = counters.jobs.iter().filter(|of| of_ours(&of.queue));
        let left: i64 = ours
            .map(|of| of.claimable + of.waiting + of.running + of.suspect)
            .sum();
        let statuses: Vec<_> = relays.iter().map(|one| one.relay.status()).collect();
        let is_down = statuses.iter().any(|status| status.down_since.is_some());
        let was_down = statuses.iter().any(|status| status.unanswered > 0);
        if left > 0 || is_down {
            empty_since = None;
        } else {
            let since = empty_since.get_or_insert_with(Instant::now);
            if !was_down || since.elapsed() > PUT_OFF {
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a route has sent.
#[derive(Serialize)]
struct Sent {
    route: String,
    accepted: u64,
    refused: u64,
    later: u64,
    last_error: Option<String>,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Report(Vec<Sent>);

impl Sent {
    fn new(one: &Started) -> Self {
        let status = one.relay.status();
        Self {
            route: one.name.clone(),
            accepted: status.accepted,
            refused: status.refused,
            later: status.later,
            last_error: status.last_error,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, sent) in self.0.iter().enumerate() {
            let end = if n > 0 { "\n" } else { "" };
            write!(f, "{end}{}: {} sent", sent.route, sent.accepted)?;
            for (count, what) in [
                (sent.refused, "refused for good"),
                (sent.later, "to be tried again"),
            ] {
                if count > 0 {
                    write!(f, ", {count} {what}")?;
                }
            }
        }
        Ok(())
    }
}
