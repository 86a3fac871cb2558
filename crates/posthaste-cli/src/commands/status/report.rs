//! The output of `posthaste status --json`.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::{Counter, Counters};
use posthaste_observe::Finding;
use serde::Serialize;

use super::captures::CaptureRow;
use super::routes::RouteRow;
use super::{JobFigures, counter_figures, longest_wait, tables};

/// The complete report for programs.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    queues: BTreeMap<&'a str, QueueReport>,
    jobs: Vec<KindReport<'a>>,
    relays: Vec<RouteRow>,
    captures: Vec<CaptureRow<'a>>,
    syncs: Vec<tables::SyncRow>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct QueueReport {
    #[serde(flatten)]
    figures: JobFigures,
    /// How long the next job has been waiting, for the priority with the longest wait.
    oldest_seconds: Option<f64>,
    /// Whether jobs wait and the queue has no worker.
    is_unworked: bool,
    is_paused: bool,
}

#[derive(Serialize)]
struct KindReport<'a> {
    queue: &'a str,
    priority: i32,
    name: &'a str,
    tag: &'a str,
    #[serde(flatten)]
    figures: JobFigures,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        counters: &'a Counters,
        unworked: &BTreeSet<&str>,
        relays: Vec<RouteRow>,
        captures: Vec<CaptureRow<'a>>,
        syncs: Vec<tables::SyncRow>,
        findings: Vec<Finding>,
    ) -> Self {
        let mut queues: BTreeMap<&str, QueueReport> = BTreeMap::new();
        let empty = |name: &str| QueueReport {
            figures: counter_figures(&Counter::default()).into(),
            oldest_seconds: longest_wait(counters, |queue, _| queue == name),
            is_unworked: unworked.contains(name),
            is_paused: counters.paused.iter().any(|paused| paused == name),
        };
        for name in &counters.paused {
            queues.entry(name).or_insert_with(|| empty(name));
        }
        for counter in &counters.jobs {
            let name = &counter.queue;
            let queue = queues.entry(name).or_insert_with(|| empty(name));
            add_counter(&mut queue.figures, counter);
        }
        let jobs = counters.jobs.iter().map(|counter| KindReport {
            queue: &counter.queue,
            priority: counter.priority,
            name: &counter.name,
            tag: &counter.tag,
            figures: counter_figures(counter).into(),
        });
        Self {
            jobs: jobs.collect(),
            queues,
            relays,
            captures,
            syncs,
            findings,
        }
    }
}

pub(super) fn add_counter(figures_of: &mut JobFigures, counter: &Counter) {
    for (what, jobs) in counter_figures(counter) {
        *figures_of.entry(what).or_default() += jobs;
    }
}
