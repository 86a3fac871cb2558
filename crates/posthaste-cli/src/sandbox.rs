//! `--sandbox`: prints actions without executing them. It claims, sends and maintains nothing, so
//! it needs no site: a copy can be inspected unchanged.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context as _;
use posthaste::{Client, Filter, State};
use posthaste_relay::{Route, preview};
use serde::Serialize;
use serde_json::Value;

use crate::database::Database;
use crate::handlers::HandlerOptions;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of jobs per queue, the oldest first: no job leaves the queue.
const MAX_JOBS_PER_QUEUE: u32 = 1_000;

/// A job that a worker would run.
#[derive(Serialize)]
struct WouldRun {
    job: i64,
    name: String,
    queue: String,
    by: String,
}

/// Prints the jobs that a worker would run, until it is stopped.
pub(crate) async fn work(
    handlers: &HandlerOptions,
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    let client: &tokio_postgres::Client = &client;
    posthaste::check_schema(client).await?;
    let queues = handlers.open()?.queues;
    announce(terminal)?;
    let mut seen = HashSet::new();
    until_stopped(signals, async || {
        for queue in &queues {
            let waiting = Filter::new().queue(&*queue.name).state(State::Available);
            let waiting = waiting.limit(MAX_JOBS_PER_QUEUE).oldest_first();
            for job in Client::new(client).list(&waiting).await? {
                let Some(by) = handlers.handler_of(&job.name) else {
                    continue;
                };
                if seen.insert(job.id) {
                    let (name, queue, id) = (job.name, job.queue, job.id);
                    let text = format!("would run job {id}, {name} of queue {queue}: {by}");
                    let job = WouldRun {
                        job: id.0,
                        name,
                        queue,
                        by,
                    };
                    terminal.print_result(text, &job)?;
                }
            }
        }
        Ok(())
    })
    .await
}

/// Prints the messages that relays would send, as `relay preview` does, until it is stopped.
pub(crate) async fn relay(
    routes: &[Route],
    database: &Database,
    terminal: &Terminal,
    signals: &Signals,
) -> anyhow::Result<()> {
    let client = database.address().connect().await?;
    posthaste::check_schema(&client).await?;
    announce(terminal)?;
    let mut seen = HashSet::new();
    until_stopped(signals, async || {
        for route in routes {
            for line in preview(&client, route, MAX_JOBS_PER_QUEUE).await? {
                let message: Value = serde_json::from_str(&line).context("a line of JSON")?;
                if seen.insert((route.name().to_owned(), message["id"].to_string())) {
                    terminal.print(&line)?;
                }
            }
        }
        Ok(())
    })
    .await
}

fn announce(terminal: &Terminal) -> anyhow::Result<()> {
    let text = "sandbox: printing what would run or be sent, without doing it; Ctrl-C stops";
    terminal.report_event("sandbox", text, &serde_json::json!({}))
}

async fn until_stopped(
    signals: &Signals,
    mut poll: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while !signals.stop_token().is_cancelled() {
        poll().await?;
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = signals.stop_token().cancelled() => {}
        }
    }
    Ok(())
}
