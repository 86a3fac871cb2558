//! The routes of posthaste.toml and their relays.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use deadpool_postgres::Pool;
use futures_util::future::try_join_all;
use posthaste_relay::{Relay, Route};
use serde_json::json;
use tokio_postgres::types::Type;

use crate::connect::Address;
use crate::file::{self, NeededSections};
use crate::terminal::Terminal;

/// Connections for rows that jobs refer to, for all routes together.
const MAX_CONNECTIONS: usize = 4;

/// A route with a running relay.
pub(crate) struct StartedRoute {
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) label: String,
    pub(crate) relay: Relay,
}

impl fmt::Display for StartedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "route {}: queue {} to {}",
            self.name, self.queue, self.label
        )?;
        match self.relay.misconfiguration() {
            Some(problem) => write!(f, "; it waits until this is fixed: {problem}"),
            None => Ok(()),
        }
    }
}

impl StartedRoute {
    /// Prints that the route runs, or its misconfiguration.
    pub(crate) fn print_started(&self, terminal: &Terminal) -> anyhow::Result<()> {
        let problem = self.relay.misconfiguration();
        let more = json!({
            "route": self.name, "queue": self.queue, "destination": self.label, "problem": problem,
        });
        terminal.report_event("route", &self.to_string(), &more)
    }
}

/// Reads the named routes of a file, or all. Fails if the file has none.
pub(crate) fn read(file: &Path, named: &[String]) -> anyhow::Result<Vec<Route>> {
    let place = file.display();
    match file::read(file, NeededSections::Routes(named))? {
        Some(file) if file.routes.is_empty() => {
            bail!("{place}: has no route. Add a section [route.<name>] with queue and to.")
        }
        Some(file) => Ok(file.routes),
        None => bail!(
            "{place} does not exist. Create it with a section [route.<name>], or name another \
             file with --config."
        ),
    }
}

/// Starts a relay for each route concurrently: a destination that does not answer delays only its
/// route. Rows that jobs refer to are read from the same database. A misconfigured destination does
/// not stop the other routes.
pub(crate) async fn start(
    routes: Vec<Route>,
    address: &Address,
) -> anyhow::Result<Vec<StartedRoute>> {
    let pool = address.pool(MAX_CONNECTIONS)?;
    let started = routes.into_iter().map(|route| start_one(route, &pool));
    try_join_all(started).await
}

/// Fails if all destinations are misconfigured.
pub(crate) fn require_one_usable(started: Vec<StartedRoute>) -> anyhow::Result<Vec<StartedRoute>> {
    match started
        .iter()
        .all(|one| one.relay.misconfiguration().is_some())
    {
        true => first_refusal(&started).map_or(Ok(started), Err),
        false => Ok(started),
    }
}

/// Returns the error of the first misconfigured route, `None` if there is none.
pub(crate) fn first_refusal(started: &[StartedRoute]) -> Option<anyhow::Error> {
    started.iter().find_map(|one| {
        let problem = anyhow!("{}", one.relay.misconfiguration()?);
        Some(problem.context(format!("route {} did not start", one.name)))
    })
}

async fn start_one(route: Route, pool: &Pool) -> anyhow::Result<StartedRoute> {
    let (name, queue) = (route.name().to_owned(), route.queue().to_owned());
    let label = route.label();
    if let Some(retention) = route.keep() {
        let outcome = set_retention(pool, &queue, retention).await;
        outcome.with_context(|| format!("route {name}: keep"))?;
    }
    let relay = route.relay().database(pool.clone()).wait_if_misconfigured();
    let relay = relay.start().await;
    let relay = relay.with_context(|| format!("route {name} did not start"))?;
    Ok(StartedRoute {
        name,
        queue,
        label,
        relay,
    })
}

/// Sets how long the queue keeps its completed jobs.
async fn set_retention(pool: &Pool, queue: &str, retention: Duration) -> anyhow::Result<()> {
    let retention = format!("{} s", retention.as_secs_f64());
    let keep = include_str!("commands/queues/keep.sql");
    let client = pool.get().await?;
    client
        .query_typed(keep, &[(&queue, Type::TEXT), (&retention, Type::TEXT)])
        .await?;
    Ok(())
}
