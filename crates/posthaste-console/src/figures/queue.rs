//! Queues as rows of tables.

use std::collections::VecDeque;

use posthaste_observe::{Snapshot, Sums, Thresholds};

use super::{Cell, PastTotals};
use crate::format;

/// The longest time over which a rate is computed, in seconds.
const MAX_RATE_SECONDS: f64 = 20.0;

/// A queue, as a row of a table.
#[derive(Clone, Debug)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    pub(crate) cells: Vec<Cell>,
    pub(crate) state: Cell,
    /// The points of a line of completed jobs at each read; empty if there were none.
    pub(crate) line: String,
    pub(crate) is_paused: bool,
    /// Its rate limit, in words.
    pub(crate) limit: Option<String>,
    pub(crate) rate: Option<i32>,
    pub(crate) per: f64,
    pub(crate) burst: Option<i32>,
    pub(crate) keep: Option<String>,
    pub(crate) keep_seconds: Option<f64>,
}

pub(super) fn queue_line(
    snapshot: &Snapshot,
    past: &VecDeque<PastTotals>,
    thresholds: &Thresholds,
    name: &str,
    sums: Sums,
) -> QueueLine {
    let oldest = snapshot.oldest_waiting(name);
    let seconds = oldest.map(|one| one.seconds);
    let settings = snapshot.queue_settings(name);
    let is_paused = snapshot.paused_at(name).is_some();
    let is_late =
        !is_paused && seconds.is_some_and(|one| one > thresholds.queue_late.as_secs_f64());
    let rates = recent_rates(past, name);
    let workers = snapshot.live_worker_count(name, thresholds);
    let unworked = oldest.is_some() && workers == 0;
    let is_failing = snapshot
        .windows
        .iter()
        .any(|one| one.queue == name && one.is_failing(thresholds));
    let (word, class) = match () {
        () if is_paused => ("paused", "paused"),
        () if unworked => ("no worker", "failing"),
        () if is_failing => ("failing", "failing"),
        () if is_late => ("late", "failing"),
        () if workers > 0 => ("active", "up"),
        () => ("idle", "idle"),
    };
    let key = |what: &str| format!("queue.{name}.{what}");
    let wait = seconds.map_or_else(|| "–".to_owned(), format::age);
    let wait_class = if is_late {
        "late"
    } else if seconds.is_none() {
        "zero"
    } else {
        ""
    };
    let rate = |what: &str, rate: Option<f64>| match rate {
        Some(rate) if rate >= 0.05 => Cell::new(key(what), format::rate(rate), ""),
        Some(_) => Cell::new(key(what), "0".to_owned(), "zero"),
        None => Cell::new(key(what), "–".to_owned(), "zero"),
    };
    let per = settings.and_then(|one| one.per).unwrap_or(1.0);
    let burst = settings.and_then(|one| one.burst);
    QueueLine {
        name: name.to_owned(),
        cells: vec![
            Cell::number(key("available"), sums.available),
            Cell::number(key("running"), sums.running).wide(),
            Cell::number(key("retrying"), sums.retrying).wide(),
            Cell::number(key("scheduled"), sums.scheduled).wide(),
            Cell::number(key("blocked"), sums.blocked).wide(),
            Cell::new(key("oldest"), wait, wait_class),
            rate("come", rates.map(|one| one.0)).wide(),
            rate("done", rates.map(|one| one.1)).wide(),
            Cell::number(key("workers"), i64::try_from(workers).unwrap_or(i64::MAX)).wide(),
        ],
        state: Cell::new(key("state"), word.to_owned(), class),
        line: sparkline_points(past, name),
        is_paused,
        limit: settings
            .and_then(|one| one.rate)
            .map(|rate| rate_limit_text(rate, per, burst)),
        rate: settings.and_then(|one| one.rate),
        per,
        burst,
        keep_seconds: settings.and_then(|one| one.keep),
        keep: settings.and_then(|one| one.keep).map(format::age),
    }
}

fn rate_limit_text(rate: i32, per: f64, burst: Option<i32>) -> String {
    let time = match per {
        1.0 => "a second".to_owned(),
        60.0 => "a minute".to_owned(),
        3_600.0 => "an hour".to_owned(),
        other => format!("in {}", format::precise_duration(other)),
    };
    let rate = format::count(rate.into());
    match burst {
        Some(burst) => format!("{rate} {time}, burst {}", format::count(burst.into())),
        None => format!("{rate} {time}"),
    }
}

/// Returns the enqueued and completed jobs of a queue per second, over the last reads.
fn recent_rates(past: &VecDeque<PastTotals>, queue: &str) -> Option<(f64, f64)> {
    let last = past.back()?;
    let since = |one: &&PastTotals| format::seconds_between(one.at, last.at) <= MAX_RATE_SECONDS;
    let first = past.iter().find(since)?;
    let seconds = format::seconds_between(first.at, last.at);
    if seconds < 0.5 {
        return None;
    }
    let (first, last) = (first.queue_totals(queue), last.queue_totals(queue));
    let rate = |first: i64, last: i64| ((last - first) as f64 / seconds).max(0.0);
    Some((rate(first.come, last.come), rate(first.done, last.done)))
}

/// Returns completed jobs per second at each read, as points of a line of 88 by 20.
fn sparkline_points(past: &VecDeque<PastTotals>, queue: &str) -> String {
    let rates: Vec<f64> = past
        .iter()
        .zip(past.iter().skip(1))
        .map(|(one, next)| {
            let seconds = format::seconds_between(one.at, next.at).max(0.001);
            ((next.queue_totals(queue).done - one.queue_totals(queue).done) as f64 / seconds)
                .max(0.0)
        })
        .collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    if rates.len() < 2 || most <= 0.0 {
        return String::new();
    }
    let step = 88.0 / (rates.len() - 1) as f64;
    let points = rates
        .iter()
        .enumerate()
        .map(|(at, rate)| format!("{:.1},{:.1}", at as f64 * step, 19.0 - rate / most * 17.0));
    points.collect::<Vec<_>>().join(" ")
}
