//! One job per commit on eight connections, against a bare one-row INSERT with the same arguments.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use serde_json::value::RawValue;
use tokio_postgres::types::Json;

use crate::bench::Bench;
use crate::contestants::JOB_NAME;
use crate::contestants::bare::Bare;
use crate::contestants::posthaste::{self, Extra, Producer};
use crate::contestants::rival::Rival;
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const CONNECTIONS: usize = 8;
const OURS: &str = "posthaste";
const BARE: &str = "bare INSERT";
const WITH_QUEUE: &str = "posthaste, a queue named";
const WITH_PRIORITY: &str = "posthaste, a priority given";
const WITH_ROUTE: &str = "posthaste, a route in the table";
const RATE: &str = "commits_per_second";

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (seconds, rounds) = (bench.plan.enqueue_seconds, bench.plan.rounds);
    bar.parameter("connections", CONNECTIONS);
    bar.parameter("seconds", seconds);
    let rivals = [Rival::update_shape(), Rival::skip_locked()];
    let names = [
        BARE,
        OURS,
        WITH_QUEUE,
        WITH_PRIORITY,
        WITH_ROUTE,
        rivals[0].name(),
        rivals[1].name(),
    ];
    play(&names, rounds, &mut bar.runs, async |index| {
        let database = Database::fresh(bench.server).await?;
        let duration = Duration::from_secs(seconds);
        match index {
            0 => {
                let bare = Bare::new();
                bare.prepare(&database).await?;
                insert(&database, bare.enqueue_statement()?, duration).await
            }
            1..5 => {
                posthaste::prepare(&database).await?;
                let extra = match names.get(index) {
                    Some(&WITH_QUEUE) => Extra::Queue,
                    Some(&WITH_PRIORITY) => Extra::Priority,
                    _ => Extra::Nothing,
                };
                if names.get(index) == Some(&WITH_ROUTE) {
                    posthaste::add_route(&database).await?;
                }
                enqueue(&database, extra, duration).await
            }
            _ => {
                let rival = rivals.get(index - 5).context("no such rival")?;
                rival.prepare(&database).await?;
                insert(&database, rival.enqueue_statement()?, duration).await
            }
        }
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let share = Requirement::bar(
        "share of a bare one-row INSERT's commits",
        "x",
        Bound::AtLeast(0.8),
    );
    bar.judgements = vec![evidence.ratio(share, OURS, BARE, RATE)?];
    Ok(())
}

/// Runs prepared one-row INSERTs, each in a separate transaction.
async fn insert(database: &Database, statement: &str, duration: Duration) -> Result<Figures> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = database.connect().await?;
        let prepared = client.prepare(statement).await?;
        clients.push((client, prepared));
    }
    let watch = Watch::begin()?;
    let times = try_join_all(clients.iter().map(|(client, prepared)| {
        repeat(duration, async |number| {
            let kwargs = Json(RawValue::from_string(format!("{{\"n\":{number}}}"))?);
            client.query_one(prepared, &[&JOB_NAME, &kwargs]).await?;
            Ok(())
        })
    }))
    .await?;
    figures(&watch, &times.concat(), duration)
}

/// Calls the library's `enqueue`, each job in a separate transaction.
async fn enqueue(database: &Database, extra: Extra, duration: Duration) -> Result<Figures> {
    let producers = try_join_all((0..CONNECTIONS).map(|_| Producer::connect(database))).await?;
    for producer in &producers {
        // The first call prepares what later ones use; the rivals have prepared theirs as well.
        producer.enqueue_with(0, extra).await?;
    }
    let watch = Watch::begin()?;
    let times = try_join_all(producers.iter().map(|producer| {
        repeat(duration, async |number| {
            producer.enqueue_with(number, extra).await
        })
    }))
    .await?;
    figures(&watch, &times.concat(), duration)
}

async fn repeat(
    duration: Duration,
    mut once: impl AsyncFnMut(u64) -> Result<()>,
) -> Result<Vec<f64>> {
    let begun = Instant::now();
    let mut milliseconds = Vec::new();
    while begun.elapsed() < duration {
        let before = Instant::now();
        once(milliseconds.len() as u64).await?;
        milliseconds.push(before.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(milliseconds)
}

fn figures(watch: &Watch, milliseconds: &[f64], duration: Duration) -> Result<Figures> {
    Ok(Figures::measured_under(watch.finish()?)
        .with(RATE, milliseconds.len() as f64 / duration.as_secs_f64())
        .with("p50_ms", percentile(milliseconds, 0.5))
        .with("p99_ms", percentile(milliseconds, 0.99)))
}
