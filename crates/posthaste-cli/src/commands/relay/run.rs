//! `posthaste relay run`: sends jobs to the destinations of posthaste.toml until it is stopped.

use anyhow::{Context as _, anyhow};
use futures_util::future::select_all;
use serde::Serialize;
use tokio_postgres::Client;

use super::misrouted::{RouteInput, misrouted_lines};
use super::{RouteSelection, once};
use crate::database::Database;
use crate::observe::ListenOptions;
use crate::routes::{self, StartedRoute};
use crate::sandbox;
use crate::signals::Signals;
use crate::site;
use crate::terminal::Terminal;
use crate::worker::{self, Settings, StopGrace};

/// Send jobs by the routes of posthaste.toml until stopped
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: RouteSelection,

    /// Exit when no due job is left to send, or when the destinations of the remaining jobs have
    /// accepted nothing for ten seconds. Does not wait for scheduled jobs
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    patience: StopGrace,

    #[command(flatten)]
    listen: ListenOptions,

    /// Print what would be sent, like 'relay preview', without sending it or changing the database;
    /// works on a copy of a database too
    #[arg(long, conflicts_with = "once")]
    sandbox: bool,
}

impl Arguments {
    pub(super) fn is_long_running(&self) -> bool {
        !self.once
    }
}

/// The totals of the routes until the relay was stopped.
#[derive(Serialize)]
struct Totals {
    routes: once::Report,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let routes = arguments.which.read()?;
    if arguments.sandbox {
        return sandbox::relay(&routes, database, terminal, signals).await;
    }
    let client = database.address().connect().await?;
    if arguments.once {
        site::require_adopted(database.address()).await?;
    }
    let relays = routes::start(routes, database.address()).await?;
    let relays = routes::require_one_usable(relays)?;
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
        one.print_started(terminal)?;
    }
    if !arguments.once {
        warn_about_misrouted(&client, &relays, terminal).await?;
    }
    terminal.report_event("working", "Ctrl-C stops", &worker.queues_json())?;
    let empty = async {
        match arguments.once {
            true => once::wait_until_empty(&client, &relays).await,
            false => std::future::pending().await,
        }
    };
    let over = async {
        tokio::select! {
            empty = empty => empty,
            gone = wait_for_first_end(&relays) => Err(gone),
        }
    };
    let ended = worker.run_until(over, database, signals).await;
    if arguments.once {
        let report = once::Report::combined(&relays);
        terminal.print_result(&report, &report)?;
        if ended.is_ok() {
            signals.fail_if_signalled()?;
            warn_about_misrouted(&client, &relays, terminal).await?;
        }
    } else {
        let routes = once::Report::combined(&relays);
        terminal.print_event_line("sent", &Totals { routes })?;
    }
    ended
}

async fn warn_about_misrouted(
    client: &Client,
    relays: &[StartedRoute],
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let fed = relays.iter().map(|one| {
        let status = one.relay.status();
        RouteInput {
            route: &one.name,
            queue: &one.queue,
            came: status.accepted + status.rejected + status.retried + status.unavailable,
        }
    });
    let fed: Vec<RouteInput<'_>> = fed.collect();
    for line in misrouted_lines(client, &fed).await? {
        terminal.print_remark(&line);
    }
    Ok(())
}

/// Completes when one of the destinations can never accept messages again, with its route and the
/// reason. The command ends then: its user can reconnect the destination and run it again. If it
/// continued for the other routes, this route would only appear to be down for a while.
async fn wait_for_first_end(relays: &[StartedRoute]) -> anyhow::Error {
    let gone = relays.iter().map(|one| {
        Box::pin(async move {
            one.relay.gone().await;
            let reason = one.relay.status().last_error.unwrap_or_default();
            let reason = reason.split(" (os error").next().unwrap_or_default();
            anyhow!(
                "route {}: {} no longer accepts messages: {reason}. Its jobs wait; no attempt is \
                 counted",
                one.name,
                one.label
            )
        })
    });
    select_all(gone).await.0
}
