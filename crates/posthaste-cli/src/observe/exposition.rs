//! Converts a snapshot to metrics, and metrics to the text format of Prometheus. No IO and no
//! clock.

mod alerts;
mod captures;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use posthaste::Counter;
use posthaste_observe::Snapshot;
use posthaste_relay::Failure;

use super::labels::{ExtraLabels, Labels, holder_kind};
pub(super) use alerts::alerts;

/// Bounds of histograms in seconds, from a millisecond to a quarter of an hour.
pub(super) const HISTOGRAM_BOUNDS: [f64; 14] = [
    0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0,
];

/// Returns the number of present jobs by state.
fn counts_by_state(of: &Counter) -> [(&'static str, i64); 11] {
    [
        ("available", of.available),
        ("blocked", of.blocked),
        ("scheduled", of.scheduled),
        ("retrying", of.retrying),
        ("running", of.running),
        ("awaiting", of.awaiting),
        ("quarantined", of.quarantined),
        ("dead", of.dead),
        ("discarded", of.discarded),
        ("expired", of.expired),
        ("cancelled", of.cancelled),
    ]
}

/// Returns the number of jobs that ended since the installation, by outcome.
fn counts_by_outcome(of: &Counter) -> [(&'static str, i64); 5] {
    [
        ("completed", of.completed_total),
        ("dead", of.dead_total),
        ("discarded", of.discarded_total),
        ("expired", of.expired_total),
        ("cancelled", of.cancelled_total),
    ]
}

/// The series of one metric, by their labels.
pub(crate) type Series = BTreeMap<Vec<(&'static str, String)>, f64>;

/// One metric, with all its series.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    /// `counter` or `gauge`.
    pub(crate) kind: &'static str,
    pub(crate) help: &'static str,
    pub(crate) series: Series,
}

impl Metric {
    /// Makes a gauge without labels.
    pub(super) fn value(name: &'static str, help: &'static str, value: f64) -> Self {
        Self {
            name,
            kind: "gauge",
            help,
            series: Series::from([(Vec::new(), value)]),
        }
    }

    /// Makes the metric that is exposed even if the database cannot be read.
    pub(super) fn database_up(is_up: bool) -> Self {
        let help = "1 if the database could be read.";
        Self::value("posthaste_database_up", help, f64::from(u8::from(is_up)))
    }
}

/// Metrics in the order of exposition.
#[derive(Default)]
struct MetricList(Vec<Metric>);

impl MetricList {
    fn metric(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        series: &Series,
    ) {
        self.0.push(Metric {
            name,
            kind,
            help,
            series: series.clone(),
        });
    }
}

/// Formats metrics for Prometheus.
pub(super) fn prometheus_text(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for Metric {
        name,
        kind,
        help,
        series,
    } in metrics
    {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in series {
            let labels: Vec<String> = labels
                .iter()
                .map(|(label, value)| format!("{label}=\"{}\"", escape_label(value)))
                .collect();
            let _ = match labels.is_empty() {
                true => writeln!(text, "{name} {value}"),
                false => writeln!(text, "{name}{{{}}} {value}", labels.join(",")),
            };
        }
    }
    text
}

fn escape_label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Makes the metrics of a snapshot.
pub(super) fn metrics(
    snapshot: &Snapshot,
    unworked: &BTreeSet<&str>,
    labels: &mut Labels,
    asked: &ExtraLabels,
) -> Vec<Metric> {
    let mut all = MetricList::default();
    add_jobs(&mut all, snapshot, labels);
    add_extra_labels(&mut all, snapshot, labels, asked);
    add_waits(&mut all, snapshot, unworked, labels);
    add_relays(&mut all, snapshot, labels);
    add_syncs(&mut all, snapshot, labels);
    captures::add_captures(&mut all, snapshot, labels);
    add_store(&mut all, snapshot);
    add_ended_sessions(&mut all, snapshot);
    all.0
}

fn add_jobs(all: &mut MetricList, snapshot: &Snapshot, labels: &mut Labels) {
    let (mut now, mut finished) = (Series::new(), Series::new());
    let (mut failed, mut again) = (Series::new(), Series::new());
    for counter in &snapshot.counters.jobs {
        let queue = labels.queue(&counter.queue);
        let name = labels.value("name", &queue, &counter.name);
        for (state, jobs) in counts_by_state(counter) {
            let key = vec![("queue", queue.clone()), ("state", state.to_owned())];
            *now.entry(key).or_default() += jobs as f64;
        }
        let named = [("queue", queue), ("name", name)];
        for (outcome, jobs) in counts_by_outcome(counter) {
            let mut key = named.to_vec();
            key.push(("outcome", outcome.to_owned()));
            *finished.entry(key).or_default() += jobs as f64;
        }
        *failed.entry(named.to_vec()).or_default() += counter.failed_total as f64;
        *again.entry(named.to_vec()).or_default() += counter.retried_total as f64;
    }
    let help = "Jobs in each state now.";
    all.metric("posthaste_jobs", "gauge", help, &now);
    let help = "Jobs that ended since the installation, by final state.";
    all.metric("posthaste_jobs_finished_total", "counter", help, &finished);
    let help = "Attempts that failed and were counted.";
    all.metric("posthaste_attempts_failed_total", "counter", help, &failed);
    let help = "Runs after which the job was rescheduled, an attempt counted or not.";
    all.metric("posthaste_runs_rescheduled_total", "counter", help, &again);
}

/// Adds the metrics that are requested for single queues.
fn add_extra_labels(
    all: &mut MetricList,
    snapshot: &Snapshot,
    labels: &mut Labels,
    asked: &ExtraLabels,
) {
    let (mut tags, mut priorities) = (Series::new(), Series::new());
    for counter in &snapshot.counters.jobs {
        let queue = labels.queue(&counter.queue);
        let add = |series: &mut Series, kind: &'static str, value: String| {
            for (state, jobs) in counts_by_state(counter) {
                let key = [
                    ("queue", queue.clone()),
                    (kind, value.clone()),
                    ("state", state.to_owned()),
                ];
                *series.entry(key.to_vec()).or_default() += jobs as f64;
            }
        };
        if asked.tags_of.contains(&counter.queue) {
            let tag = labels.value("tag", &counter.queue, &counter.tag);
            add(&mut tags, "tag", tag);
        }
        if asked.priorities_of.contains(&counter.queue) {
            let priority = counter.priority.to_string();
            let priority = labels.value("priority", &counter.queue, &priority);
            add(&mut priorities, "priority", priority);
        }
    }
    if !tags.is_empty() {
        let help = "Jobs in each state now, by tag.";
        all.metric("posthaste_tag_jobs", "gauge", help, &tags);
    }
    if !priorities.is_empty() {
        let help = "Jobs in each state now, by priority.";
        all.metric("posthaste_priority_jobs", "gauge", help, &priorities);
    }
}

fn add_waits(
    all: &mut MetricList,
    snapshot: &Snapshot,
    unworked: &BTreeSet<&str>,
    labels: &mut Labels,
) {
    let (mut ages, mut unserved) = (Series::new(), Series::new());
    let mut paused = Series::new();
    // A queue without waiting jobs has an age too: otherwise an alert would not end.
    for counter in &snapshot.counters.jobs {
        let key = vec![("queue", labels.queue(&counter.queue))];
        ages.insert(key.clone(), 0.0);
        unserved.insert(key.clone(), 0.0);
        paused.insert(key, 0.0);
    }
    for queue in &snapshot.counters.paused {
        paused.insert(vec![("queue", labels.queue(queue))], 1.0);
    }
    for oldest in &snapshot.counters.oldest {
        let key = vec![("queue", labels.queue(&oldest.queue))];
        let age = ages.entry(key.clone()).or_default();
        *age = age.max(oldest.seconds);
        if unworked.contains(&*oldest.queue) {
            unserved.insert(key, 1.0);
        }
    }
    let name = "posthaste_oldest_available_age_seconds";
    let help = "How long the next job of a queue has waited; 0 if none waits.";
    all.metric(name, "gauge", help, &ages);
    let help = "1 if jobs wait in a queue that no worker serves.";
    all.metric("posthaste_queue_unworked", "gauge", help, &unserved);
    let help = "1 if a queue is paused.";
    all.metric("posthaste_queue_paused", "gauge", help, &paused);
}

fn add_relays(all: &mut MetricList, snapshot: &Snapshot, labels: &mut Labels) {
    let (mut lag, mut up) = (Series::new(), Series::new());
    let (mut accepted, mut failures) = (Series::new(), Series::new());
    let waited = |queue: &str| {
        let oldest = snapshot.counters.oldest.iter();
        let of_queue = oldest.filter(|one| one.queue == queue);
        of_queue.map(|one| one.seconds).fold(0.0, f64::max)
    };
    for relay in &snapshot.relays {
        let queue = labels.queue(&relay.queue);
        labels.has_relay(&relay.queue, &relay.destination);
        let of = [("queue", queue), ("destination", relay.destination.clone())];
        lag.insert(of.to_vec(), waited(&relay.queue));
        let sends = matches!(relay.state.name(), "up" | "standby");
        let is_up = up.entry(of.to_vec()).or_default();
        *is_up = f64::max(*is_up, f64::from(sends));
        // One series per process: a sum would fall when a process ends.
        let worker = ("worker", relay.worker.to_string());
        let of = [of.as_slice(), &[worker]].concat();
        *accepted.entry(of.clone()).or_default() += relay.status.accepted as f64;
        // A series starts at 0, so that a rate includes the first failure.
        for reason in Failure::ALL {
            let messages = relay.status.failures.get(reason.name());
            let mut key = of.clone();
            key.push(("reason", reason.name().to_owned()));
            *failures.entry(key).or_default() += *messages.unwrap_or(&0) as f64;
        }
    }
    // The store forgets a relay an hour after its end. Its series remains while jobs wait, and so
    // does an alert.
    for (queue, destination) in labels.relays() {
        let waits = waited(&queue);
        let key = vec![
            ("queue", labels.queue(&queue)),
            ("destination", destination),
        ];
        if waits > 0.0 && !up.contains_key(&key) {
            up.insert(key.clone(), 0.0);
            lag.insert(key, waits);
        }
    }
    let help = "How long the next job of a relay's queue has waited.";
    all.metric("posthaste_relay_lag_seconds", "gauge", help, &lag);
    let help = "1 while a relay of the queue sends or stands by.";
    all.metric("posthaste_relay_up", "gauge", help, &up);
    let help = "Messages that the destination accepted since the relay was started.";
    all.metric("posthaste_relay_accepted_total", "counter", help, &accepted);
    let help = "Rejections of messages since the relay was started, by reason.";
    all.metric("posthaste_relay_failures_total", "counter", help, &failures);
}

fn add_syncs(all: &mut MetricList, snapshot: &Snapshot, labels: &mut Labels) {
    let (mut lag, mut due) = (Series::new(), Series::new());
    let (mut failing, mut given_up) = (Series::new(), Series::new());
    for sync in &snapshot.syncs {
        let key = vec![("sync", labels.value("sync", "", &sync.name))];
        lag.insert(key.clone(), sync.lag_seconds().unwrap_or(0.0));
        due.insert(key.clone(), sync.due as f64);
        failing.insert(key.clone(), sync.failing_seconds().unwrap_or(0.0));
        given_up.insert(key, sync.given_up() as f64);
    }
    let help = "How long the oldest change has been due and not visible in the index.";
    all.metric("posthaste_sync_lag_seconds", "gauge", help, &lag);
    let help = "Changes that are due and not yet visible in the index.";
    all.metric("posthaste_sync_due", "gauge", help, &due);
    let help = "How long writes to the index have failed; 0 while they succeed.";
    all.metric("posthaste_sync_failing_seconds", "gauge", help, &failing);
    let help = "Changes that were given up.";
    all.metric("posthaste_sync_given_up", "gauge", help, &given_up);
}

fn add_store(all: &mut MetricList, snapshot: &Snapshot) {
    let segments = &snapshot.segments;
    let state = |state: &str| vec![("state", state.to_owned())];
    let series = Series::from([
        (state("live"), segments.live as f64),
        (state("sealed"), segments.sealed as f64),
    ]);
    let help = "Segments of the ready log: in use, and of these full and waiting to be truncated.";
    all.metric("posthaste_segments", "gauge", help, &series);
    let by = |by: &str| vec![("by", by.to_owned())];
    let series = Series::from([
        (by("transaction"), segments.by_transaction as f64),
        (by("lock"), segments.by_lock as f64),
    ]);
    let help = "Full segments that a session has held for more than a second.";
    all.metric("posthaste_segments_blocked", "gauge", help, &series);
    let (mut ages, mut seconds) = (Series::new(), Series::new());
    // Rows that a replica holds by a slot are counted with the slot.
    for holder in snapshot.holders.iter().filter(|one| !one.is_by_slot) {
        let Some(transactions) = holder.transactions else {
            continue;
        };
        let key = vec![("holder", holder_kind(holder.kind).to_owned())];
        let age = ages.entry(key.clone()).or_default();
        *age = age.max(transactions as f64);
        if let Some(open) = holder.seconds {
            let longest = seconds.entry(key).or_default();
            *longest = longest.max(open);
        }
    }
    let help = "Age, in transactions, of the oldest snapshot that holds back vacuum, by the kind \
                of holder.";
    all.metric("posthaste_xmin_age", "gauge", help, &ages);
    let name = "posthaste_oldest_transaction_age_seconds";
    let help = "How long the oldest transaction of a kind has been open.";
    all.metric(name, "gauge", help, &seconds);
}

/// Adds the sessions that txwatch ended in the last hour.
fn add_ended_sessions(all: &mut MetricList, snapshot: &Snapshot) {
    let key = |action: &str, result: &str| {
        vec![("action", action.to_owned()), ("result", result.to_owned())]
    };
    let mut series = Series::new();
    for action in ["cancel", "terminate"] {
        for result in ["done", "failed"] {
            series.insert(key(action, result), 0.0);
        }
    }
    for one in snapshot.recently_ended_transactions() {
        let result = if one.result == "done" {
            "done"
        } else {
            "failed"
        };
        *series.entry(key(&one.action, result)).or_default() += 1.0;
    }
    let help = "Sessions that txwatch cancelled or terminated in the last hour.";
    all.metric("posthaste_txwatch_actions", "gauge", help, &series);
}
