//! What is made of a snapshot: lines of tables, rates, and cells that a page keeps up to date. No
//! IO, no clock.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use posthaste_relay::{RelayReport, RelayState};

use crate::snapshot::{Holder, Snapshot, Sums, Worker};
use crate::verdict::{self, Limits, Verdict};
use crate::words;

/// A rate is told over this many seconds.
const RATE_OVER: f64 = 20.0;

/// How many jobs had come and were done at a moment, by queue.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    at: Timestamp,
    queues: BTreeMap<String, Passed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    come: i64,
    done: i64,
}

impl Past {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let queues = snapshot.by_queue().into_iter().map(|(name, sums)| {
            let passed = Passed {
                come: sums.pending() + sums.done + sums.given_up,
                done: sums.done,
            };
            (name.to_owned(), passed)
        });
        Self {
            at: snapshot.server.at,
            queues: queues.collect(),
        }
    }

    fn of(&self, queue: &str) -> Passed {
        self.queues.get(queue).copied().unwrap_or_default()
    }
}

/// A figure that may change while a page is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// By what a page finds it.
    pub(crate) key: String,
    pub(crate) text: String,
    /// `zero`, `late`, or a state's word.
    pub(crate) class: &'static str,
    /// Narrow screens leave it out.
    pub(crate) is_wide: bool,
}

impl Cell {
    fn new(key: String, text: String, class: &'static str) -> Self {
        Self {
            key,
            text,
            class,
            is_wide: false,
        }
    }

    fn number(key: String, number: i64) -> Self {
        let class = if number == 0 { "zero" } else { "" };
        Self::new(key, words::count(number), class)
    }

    fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }
}

/// A queue, as a line of a table.
#[derive(Clone, Debug)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    pub(crate) sums: Sums,
    pub(crate) cells: Vec<Cell>,
    pub(crate) state: Cell,
    /// Jobs done at each look, as the points of a line; empty where nothing was.
    pub(crate) line: String,
    pub(crate) come_rate: Option<f64>,
    pub(crate) done_rate: Option<f64>,
    pub(crate) is_paused: bool,
    /// What its rate is limited to, in words.
    pub(crate) limit: Option<String>,
    pub(crate) rate: Option<i32>,
    pub(crate) per: f64,
    pub(crate) burst: Option<i32>,
    pub(crate) keep: Option<String>,
}

/// A relay, as a line of a table.
#[derive(Clone, Debug)]
pub(crate) struct RelayLine {
    pub(crate) name: String,
    pub(crate) destination: String,
    pub(crate) last_error: Option<String>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) state: Cell,
}

/// A worker, as a line of a table.
#[derive(Clone, Debug)]
pub(crate) struct WorkerLine {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) queues: String,
    pub(crate) started: String,
    pub(crate) seen: Cell,
    pub(crate) state: Cell,
}

/// All that is shown of the whole store.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) snapshot: Snapshot,
    pub(crate) sums: Sums,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) queues: Vec<QueueLine>,
    pub(crate) relays: Vec<RelayLine>,
    pub(crate) workers: Vec<WorkerLine>,
}

impl Figures {
    pub(crate) fn new(snapshot: Snapshot, past: &VecDeque<Past>, limits: &Limits) -> Self {
        let queues: Vec<QueueLine> = snapshot
            .by_queue()
            .into_iter()
            .map(|(name, sums)| queue_line(&snapshot, past, limits, name, sums))
            .collect();
        let relays = snapshot.relays.iter();
        let workers = snapshot.workers.iter();
        Self {
            sums: snapshot.sums(),
            relays: relays.map(|relay| relay_line(&snapshot, relay)).collect(),
            workers: workers
                .map(|worker| worker_line(&snapshot, worker))
                .collect(),
            verdicts: verdict::verdicts(&snapshot, &queues, limits),
            queues,
            snapshot,
        }
    }

    /// Figures of the margin, which every page has.
    pub(crate) fn margin(&self) -> Vec<Cell> {
        let failing = self.relays.iter();
        let failing = failing.filter(|one| one.state.class == "failing").count();
        let bad = |number: i64| if number > 0 { "bad" } else { "zero" };
        let of = |key: &str, number: usize, class| {
            let text = words::count(i64::try_from(number).unwrap_or(i64::MAX));
            Cell::new(key.to_owned(), text, class)
        };
        let kept =
            |key: &str, number: i64, class| Cell::new(key.to_owned(), words::count(number), class);
        vec![
            of("margin.queues", self.queues.len(), ""),
            kept("margin.jobs", self.sums.pending(), ""),
            kept("margin.dead", self.sums.dead, bad(self.sums.dead)),
            kept("margin.expired", self.sums.expired, bad(self.sums.expired)),
            of("margin.relays", failing, bad(i64::from(failing > 0))),
            of("margin.workers", self.workers.len(), ""),
        ]
    }

    /// All cells that may change.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = self.margin();
        cells.push(self.as_of());
        for queue in &self.queues {
            cells.extend(queue.cells.iter().cloned());
            cells.push(queue.state.clone());
        }
        for relay in &self.relays {
            cells.extend(relay.cells.iter().cloned());
            cells.push(relay.state.clone());
        }
        for worker in &self.workers {
            cells.extend([worker.seen.clone(), worker.state.clone()]);
        }
        cells
    }

    /// When it was read, and how long that took.
    pub(crate) fn as_of(&self) -> Cell {
        let (at, took) = (self.snapshot.server.at, self.snapshot.took);
        let text = format!(
            "As of {} UTC, exact, read in {}",
            words::time(at, at),
            words::span(took.as_secs_f64())
        );
        Cell::new("as_of".to_owned(), text, "")
    }

    pub(crate) fn holders(&self) -> &[Holder] {
        &self.snapshot.holders
    }
}

fn queue_line(
    snapshot: &Snapshot,
    past: &VecDeque<Past>,
    limits: &Limits,
    name: &str,
    sums: Sums,
) -> QueueLine {
    let oldest = snapshot.oldest(name);
    let seconds = oldest.map(|one| one.seconds);
    let settings = snapshot.settings(name);
    let is_paused = snapshot.paused_at(name).is_some();
    let is_late = !is_paused && seconds.is_some_and(|one| one > limits.late_after);
    let rates = rates(past, name);
    let workers = snapshot.workers_on(name);
    let unworked = oldest.is_some_and(|one| !one.is_worked);
    let (word, class) = match () {
        () if is_paused => ("paused", "paused"),
        () if unworked => ("no worker", "failing"),
        () if is_late => ("behind", "failing"),
        () if workers > 0 => ("worked", "up"),
        () => ("idle", "idle"),
    };
    let key = |what: &str| format!("queue.{name}.{what}");
    let wait = seconds.map_or_else(|| "–".to_owned(), words::age);
    let wait_class = if is_late {
        "late"
    } else if seconds.is_none() {
        "zero"
    } else {
        ""
    };
    let rate = |what: &str, rate: Option<f64>| match rate {
        Some(rate) if rate >= 0.05 => Cell::new(key(what), words::rate(rate), ""),
        Some(_) => Cell::new(key(what), "0".to_owned(), "zero"),
        None => Cell::new(key(what), "–".to_owned(), "zero"),
    };
    let per = settings.and_then(|one| one.per).unwrap_or(1.0);
    let burst = settings.and_then(|one| one.burst);
    QueueLine {
        name: name.to_owned(),
        sums,
        cells: vec![
            Cell::number(key("available"), sums.available),
            Cell::number(key("running"), sums.running).wide(),
            Cell::number(key("retrying"), sums.retrying).wide(),
            Cell::number(key("scheduled"), sums.scheduled + sums.blocked).wide(),
            Cell::new(key("oldest"), wait, wait_class),
            rate("come", rates.map(|one| one.0)).wide(),
            rate("done", rates.map(|one| one.1)).wide(),
            Cell::number(key("workers"), i64::try_from(workers).unwrap_or(i64::MAX)).wide(),
        ],
        state: Cell::new(key("state"), word.to_owned(), class),
        line: line(past, name),
        come_rate: rates.map(|one| one.0),
        done_rate: rates.map(|one| one.1),
        is_paused,
        limit: settings
            .and_then(|one| one.rate)
            .map(|rate| limit_words(rate, per, burst)),
        rate: settings.and_then(|one| one.rate),
        per,
        burst,
        keep: settings.and_then(|one| one.keep).map(words::age),
    }
}

fn limit_words(rate: i32, per: f64, burst: Option<i32>) -> String {
    let time = match per {
        1.0 => "a second".to_owned(),
        60.0 => "a minute".to_owned(),
        3_600.0 => "an hour".to_owned(),
        other => format!("in {}", words::span(other)),
    };
    let rate = words::count(rate.into());
    match burst {
        Some(burst) => format!("{rate} {time}, {} at once", words::count(burst.into())),
        None => format!("{rate} {time}"),
    }
}

/// How many jobs of a queue come and are done a second, over the last looks.
fn rates(past: &VecDeque<Past>, queue: &str) -> Option<(f64, f64)> {
    let last = past.back()?;
    let since = |one: &&Past| words::seconds(one.at, last.at) <= RATE_OVER;
    let first = past.iter().find(since)?;
    let seconds = words::seconds(first.at, last.at);
    if seconds < 0.5 {
        return None;
    }
    let (first, last) = (first.of(queue), last.of(queue));
    let rate = |first: i64, last: i64| ((last - first) as f64 / seconds).max(0.0);
    Some((rate(first.come, last.come), rate(first.done, last.done)))
}

/// Jobs done a second at each look, as points of a line of 88 by 20.
fn line(past: &VecDeque<Past>, queue: &str) -> String {
    let rates: Vec<f64> = past
        .iter()
        .zip(past.iter().skip(1))
        .map(|(one, next)| {
            let seconds = words::seconds(one.at, next.at).max(0.001);
            ((next.of(queue).done - one.of(queue).done) as f64 / seconds).max(0.0)
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

/// What a relay is called: by its route, else by its queue.
pub(crate) fn relay_name(relay: &RelayReport) -> String {
    match relay.route.is_empty() {
        true => relay.queue.clone(),
        false => relay.route.clone(),
    }
}

fn relay_line(snapshot: &Snapshot, relay: &RelayReport) -> RelayLine {
    let name = relay_name(relay);
    let key = |what: &str| format!("relay.{}.{}.{what}", relay.queue, relay.worker);
    let waited = snapshot.oldest(&relay.queue).map(|one| one.seconds);
    let fails = verdict::fails_since(relay).is_some();
    let lag_class = match waited {
        None => "zero",
        Some(_) if fails => "late",
        Some(_) => "",
    };
    let (word, class) = match relay.state {
        RelayState::Up if fails => ("failing", "failing"),
        RelayState::Up => ("up", "up"),
        RelayState::Standby => ("standby", "idle"),
        RelayState::Stopped => ("stopped", "paused"),
        other => (other.name(), "failing"),
    };
    let sent = i64::try_from(relay.status.accepted).unwrap_or(i64::MAX);
    let rejected = i64::try_from(relay.status.rejected).unwrap_or(i64::MAX);
    RelayLine {
        destination: relay.destination.clone(),
        last_error: relay.status.last_error.clone().filter(|_| fails),
        cells: vec![
            Cell::new(
                key("lag"),
                waited.map_or_else(|| "–".to_owned(), words::age),
                lag_class,
            ),
            Cell::number(key("sent"), sent),
            Cell::number(key("rejected"), rejected).wide(),
        ],
        state: Cell::new(key("state"), word.to_owned(), class),
        name,
    }
}

fn worker_line(snapshot: &Snapshot, worker: &Worker) -> WorkerLine {
    let is_silent = worker.silent > verdict::SILENT;
    let key = |what: &str| format!("worker.{}.{what}", worker.id);
    let (word, class) = match (is_silent, worker.leads) {
        (true, _) => ("silent", "failing"),
        (false, true) => ("leads", "up"),
        (false, false) => ("works", "up"),
    };
    let seen = format!("{} ago", words::age(worker.silent.max(0.0)));
    WorkerLine {
        id: worker.id,
        name: worker.name.clone(),
        queues: match worker.queues.is_empty() {
            true => "any".to_owned(),
            false => worker.queues.join(", "),
        },
        started: words::time(worker.started_at, snapshot.server.at),
        seen: Cell::new(key("seen"), seen, if is_silent { "late" } else { "" }),
        state: Cell::new(key("state"), word.to_owned(), class),
    }
}
