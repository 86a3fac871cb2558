//! Relays in the output of `posthaste status`, below the queues.

use std::collections::BTreeMap;
use std::fmt;

use posthaste::Counters;
use posthaste_observe::failing_since;
use posthaste_observe::format::age;
use posthaste_relay::RelayReport;
use serde::Serialize;

use super::longest_wait;
use crate::terminal::escape_name;

/// A row of one relay.
#[derive(Serialize)]
pub(super) struct RouteRow {
    route: String,
    queue: String,
    destination: String,
    worker: i64,
    state: &'static str,
    /// How long the next job of the queue has been waiting.
    lag_seconds: Option<f64>,
    accepted: u64,
    rejected: u64,
    retried: u64,
    unavailable: u64,
    down_since: Option<jiff::Timestamp>,
    /// The time since which nothing was delivered.
    failing_since: Option<jiff::Timestamp>,
    /// Messages rejected permanently, by reason.
    rejections: BTreeMap<String, u64>,
    last_error: Option<String>,
    updated_at: jiff::Timestamp,
    /// How long nothing was delivered, in seconds.
    failing_seconds: Option<f64>,
}

impl RouteRow {
    pub(super) fn new(relay: RelayReport, counters: &Counters) -> Self {
        let lag_seconds = longest_wait(counters, |queue, _| queue == relay.queue);
        let failing = failing_since(&relay);
        let failing = failing.map(|since| jiff::Timestamp::now().duration_since(since));
        Self {
            lag_seconds,
            failing_seconds: failing.map(|time| time.as_secs_f64().max(0.0)),
            route: relay.route,
            queue: relay.queue,
            destination: relay.destination,
            worker: relay.worker,
            state: relay.state.name(),
            accepted: relay.status.accepted,
            rejected: relay.status.rejected,
            retried: relay.status.retried,
            unavailable: relay.status.unavailable,
            down_since: relay.status.down_since,
            failing_since: relay.status.failing_since,
            rejections: relay.status.rejections,
            last_error: relay.status.last_error,
            updated_at: relay.updated_at,
        }
    }
}

/// The rows as text.
pub(super) struct RouteTable<'a>(pub(super) &'a [RouteRow]);

impl fmt::Display for RouteTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |line: &RouteRow| match line.route.is_empty() {
            true => escape_name(&line.queue),
            false => escape_name(&line.route),
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
            "{:names$}  {:places$}  {:8}  {:>8}  {:>9}  last error",
            "route", "to", "state", "lag", "fails for"
        )?;
        for line in self.0 {
            let lag = line.lag_seconds.map_or_else(|| "-".to_owned(), age);
            let error = line.last_error.as_deref().unwrap_or("-");
            let fails = line.failing_seconds.map_or_else(|| "-".to_owned(), age);
            write!(
                f,
                "\n{:names$}  {:places$}  {:8}  {lag:>8}  {fails:>9}  {}",
                name(line),
                line.destination,
                line.state,
                escape_name(error)
            )?;
        }
        for line in self.0 {
            for (reason, count) in &line.rejections {
                let (name, reason) = (name(line), escape_name(reason));
                write!(f, "\n{name}: {count} rejected permanently: {reason}")?;
            }
        }
        Ok(())
    }
}
