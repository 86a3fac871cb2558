//! How relays go, as `posthaste status` shows it below the queues.

use std::fmt;

use posthaste::Counters;
use posthaste::relay::RelayReport;
use serde::Serialize;

use super::{age, oldest};

/// One relay.
#[derive(Serialize)]
pub(super) struct Line {
    route: String,
    queue: String,
    destination: String,
    worker: i64,
    state: &'static str,
    /// How long the queue's next job has waited.
    lag_seconds: Option<f64>,
    accepted: u64,
    refused: u64,
    later: u64,
    unanswered: u64,
    down_since: Option<jiff::Timestamp>,
    last_error: Option<String>,
    told_at: jiff::Timestamp,
}

impl Line {
    pub(super) fn new(relay: RelayReport, counters: &Counters) -> Self {
        let lag_seconds = oldest(counters, |queue, _| queue == relay.queue);
        Self {
            lag_seconds,
            route: relay.route,
            queue: relay.queue,
            destination: relay.destination,
            worker: relay.worker,
            state: relay.state.name(),
            accepted: relay.status.accepted,
            refused: relay.status.refused,
            later: relay.status.later,
            unanswered: relay.status.unanswered,
            down_since: relay.status.down_since,
            last_error: relay.status.last_error,
            told_at: relay.told_at,
        }
    }
}

/// For people.
pub(super) struct Table<'a>(pub(super) &'a [Line]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |line: &Line| match line.route.is_empty() {
            true => line.queue.clone(),
            false => line.route.clone(),
        };
        let width = |cells: &mut dyn Iterator<Item = usize>, least: usize| {
            cells.max().unwrap_or(0).max(least)
        };
        let names = width(&mut self.0.iter().map(|line| name(line).chars().count()), 5);
        let places = width(
            &mut self.0.iter().map(|line| line.destination.chars().count()),
            2,
        );
        write!(
            f,
            "{:names$}  {:places$}  {:8}  {:>8}  last error",
            "route", "to", "state", "lag"
        )?;
        for line in self.0 {
            let lag = line.lag_seconds.map_or_else(|| "-".to_owned(), age);
            let error = line.last_error.as_deref().unwrap_or("-");
            write!(
                f,
                "\n{:names$}  {:places$}  {:8}  {lag:>8}  {}",
                name(line),
                line.destination,
                line.state,
                error.replace(|letter: char| letter.is_control(), " ")
            )?;
        }
        Ok(())
    }
}
