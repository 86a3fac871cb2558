//! Figures from a snapshot: rows of tables, rates, and cells that an open page updates. No IO, no
//! clock.

mod bulk;
mod queue;
mod relay;
mod worker;

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use posthaste::Holder;
use posthaste_observe::{Finding, Snapshot, Sums, Thresholds, findings};

use crate::action::Action;
use crate::format;
use crate::verdict::{self, Verdict};
pub(crate) use bulk::{BulkLine, bulk_line};
pub(crate) use queue::QueueLine;
pub(crate) use relay::RelayLine;
pub(crate) use worker::WorkerLine;

/// Holders of vacuum that are shown at most.
const MAX_HOLDERS: usize = 200;

/// The totals of enqueued and completed jobs at a moment, by queue.
#[derive(Clone, Debug)]
pub(crate) struct PastTotals {
    at: Timestamp,
    queues: BTreeMap<String, QueueTotals>,
}

#[derive(Clone, Copy, Debug, Default)]
struct QueueTotals {
    come: i64,
    done: i64,
}

impl PastTotals {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let queues = snapshot.sums_by_queue().into_iter().map(|(name, sums)| {
            let passed = QueueTotals {
                come: sums.enqueued(),
                done: sums.done,
            };
            (name.to_owned(), passed)
        });
        Self {
            at: snapshot.server.at,
            queues: queues.collect(),
        }
    }

    fn queue_totals(&self, queue: &str) -> QueueTotals {
        self.queues.get(queue).copied().unwrap_or_default()
    }
}

/// A figure that may change while a page is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The key by which a page finds the cell.
    pub(crate) key: String,
    pub(crate) text: String,
    /// `zero`, `late`, or a state's word.
    pub(crate) class: &'static str,
    /// Whether narrow screens leave it out.
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

    pub(crate) fn number(key: String, number: i64) -> Self {
        let class = if number == 0 { "zero" } else { "" };
        Self::new(key, format::count(number), class)
    }

    fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }
}

/// All figures of the whole store.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) snapshot: Snapshot,
    pub(crate) sums: Sums,
    pub(crate) findings: Vec<Finding>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) queues: Vec<QueueLine>,
    pub(crate) relays: Vec<RelayLine>,
    pub(crate) workers: Vec<WorkerLine>,
    /// Actions on all jobs of a filter, the newest first.
    pub(crate) bulk: Vec<BulkLine>,
    /// Whether the console's role has the rights to act.
    pub(crate) role_may_act: bool,
}

impl Figures {
    pub(crate) fn new(
        snapshot: Snapshot,
        actions: Vec<Action>,
        role_may_act: bool,
        past: &VecDeque<PastTotals>,
        thresholds: &Thresholds,
    ) -> Self {
        let findings = findings(&snapshot, thresholds);
        let queues: Vec<QueueLine> = snapshot
            .sums_by_queue()
            .into_iter()
            .map(|(name, sums)| queue::queue_line(&snapshot, past, thresholds, name, sums))
            .collect();
        let relays = snapshot.relays.iter();
        let workers = snapshot.workers.iter();
        Self {
            sums: snapshot.sums(),
            relays: relays
                .map(|relay| relay::relay_line(&snapshot, relay, thresholds))
                .collect(),
            workers: workers
                .map(|worker| worker::worker_line(&snapshot, worker, thresholds))
                .collect(),
            bulk: actions
                .iter()
                .map(|action| bulk::bulk_line(action, snapshot.server.at))
                .collect(),
            verdicts: verdict::verdicts(&snapshot, &findings, &actions),
            findings,
            queues,
            role_may_act,
            snapshot,
        }
    }

    /// Returns the figures of the navigation, which every page has.
    pub(crate) fn navigation_cells(&self) -> Vec<Cell> {
        let failing = self.relays.iter();
        let failing = failing.filter(|one| one.state.class == "failing").count();
        let later = self.sums.scheduled + self.sums.retrying;
        let bad = |number: i64| if number > 0 { "bad" } else { "zero" };
        let of = |key: &str, number: usize, class| {
            let text = format::count(i64::try_from(number).unwrap_or(i64::MAX));
            Cell::new(key.to_owned(), text, class)
        };
        let cell =
            |key: &str, number: i64, class| Cell::new(key.to_owned(), format::count(number), class);
        vec![
            of("margin.queues", self.queues.len(), ""),
            cell("margin.jobs", self.sums.pending(), ""),
            cell(
                "margin.scheduled",
                later,
                if later == 0 { "zero" } else { "" },
            ),
            cell("margin.dead", self.sums.dead, bad(self.sums.dead)),
            cell("margin.expired", self.sums.expired, bad(self.sums.expired)),
            of("margin.relays", failing, bad(i64::from(failing > 0))),
            of("margin.holders", self.holders().len(), ""),
            of("margin.workers", self.workers.len(), ""),
        ]
    }

    /// Returns all cells that may change.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = self.navigation_cells();
        cells.push(self.as_of());
        for queue in &self.queues {
            cells.extend(queue.cells.iter().cloned());
            cells.push(queue.state.clone());
        }
        for relay in &self.relays {
            cells.extend(relay.stands.iter().chain(&relay.did).cloned());
            cells.push(relay.state.clone());
        }
        for worker in &self.workers {
            cells.extend([worker.seen.clone(), worker.state.clone()]);
        }
        for action in &self.bulk {
            let figures = [&action.state, &action.done, &action.value];
            cells.extend(figures.into_iter().cloned());
        }
        cells
    }

    /// Returns the time of the read and its duration.
    pub(crate) fn as_of(&self) -> Cell {
        let (at, took) = (self.snapshot.server.at, self.snapshot.took);
        let text = format!(
            "Exact counts as of {} UTC, read in {}",
            format::time(at, at),
            format::precise_duration(took.as_secs_f64())
        );
        Cell::new("as_of".to_owned(), text, "")
    }

    /// Returns the holders of vacuum, the oldest first.
    pub(crate) fn holders(&self) -> Vec<&Holder> {
        self.snapshot.vacuum_holders().take(MAX_HOLDERS).collect()
    }
}
