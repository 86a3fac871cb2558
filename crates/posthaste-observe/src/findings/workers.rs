//! Findings about workers as a whole.

use crate::facts::Worker;
use crate::finding::{Finding, Kind};
use crate::format::{age, one_line, pluralize, seconds_between, time};
use crate::snapshot::Snapshot;
use crate::thresholds::Thresholds;

pub(super) fn findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let mut found = Vec::new();
    if snapshot.live_workers(thresholds).next().is_none() {
        found.extend(no_worker_finding(snapshot));
    } else if !snapshot.store.has_leader {
        found.push(Finding::new(
            Kind::WorkerNoLeader,
            "No worker does maintenance: scheduled jobs do not become due, jobs of dead workers \
             are not rescued, and disk space is not freed.",
            "Start a worker with Config::maintenance; 'posthaste work' always has it.",
        ));
    }
    for worker in &snapshot.workers {
        if worker.is_alive(thresholds) {
            found.extend(failing_endpoint_finding(snapshot, worker));
            continue;
        }
        let (name, id) = (one_line(&worker.name, 80), worker.id);
        let summary = match worker.silent < 0.0 {
            false => format!(
                "Worker {name} ({id}) has been silent for {}.",
                age(worker.silent)
            ),
            true => format!(
                "Worker {name} ({id}) has been silent since before the server's clock stepped \
                 back."
            ),
        };
        let remedy = "Check its process. If it is dead, another worker rescues its jobs.";
        found.push(Finding::new(Kind::WorkerSilent, summary, remedy).about(&worker.name, 0));
    }
    found
}

/// Returns `None` if no job waits for the endpoint, because only a job shows that it accepts jobs
/// again.
fn failing_endpoint_finding(snapshot: &Snapshot, worker: &Worker) -> Option<Finding> {
    let since = worker.failing_since?;
    let sums = snapshot.sums_where(|counter| worker.serves(&counter.queue));
    let waiting = sums.available + sums.blocked + sums.scheduled + sums.retrying + sums.running;
    if waiting == 0 {
        return None;
    }
    let (name, id) = (one_line(&worker.name, 80), worker.id);
    let time = age(seconds_between(since, snapshot.server.at).max(0.0));
    let jobs = pluralize(waiting, "job", "jobs");
    let error = one_line(worker.last_error.as_deref().unwrap_or_default(), 160);
    let summary = format!(
        "An HTTP endpoint of worker {name} ({id}) has accepted no jobs for {time}; {jobs} \
         waiting: {error}"
    );
    let remedy = "Correct the address or the secret of 'posthaste work --http', or repair the \
                  endpoint. Jobs wait, and no attempt is counted.";
    let finding = Finding::new(Kind::WorkerFailing, summary, remedy);
    Some(finding.about(&worker.name, waiting).since(since))
}

/// Returns `None` if all jobs are those of relays and syncs, which have their own findings.
fn no_worker_finding(snapshot: &Snapshot) -> Option<Finding> {
    let is_others = |queue: &str| {
        snapshot.relays_of(queue).next().is_some() || snapshot.sync_of(queue).is_some()
    };
    let sums = snapshot.sums_by_queue();
    let pending = sums.iter().filter(|(_, sums)| sums.pending() > 0);
    let (others, ours): (Vec<_>, Vec<_>) = pending.partition(|(queue, _)| is_others(queue));
    if ours.is_empty() {
        return others.is_empty().then(|| {
            let remedy = "Start a worker, such as 'posthaste work', before jobs are enqueued.";
            Finding::new(
                Kind::WorkerIdle,
                "No worker is running. No jobs are waiting.",
                remedy,
            )
        });
    }
    let jobs: i64 = ours.iter().map(|(_, sums)| sums.pending()).sum();
    let since = ours
        .iter()
        .filter_map(|(queue, _)| snapshot.oldest_waiting(queue));
    let since = since.map(|oldest| oldest.since).min();
    let oldest = since.map(|since| time(since, snapshot.server.at));
    let oldest = oldest.map_or_else(String::new, |since| format!(", the oldest since {since}"));
    let queues = match ours.len() {
        1 => format!("queue {}", one_line(ours[0].0, 80)),
        many => format!("{many} queues"),
    };
    let summary = format!(
        "No worker is running: {} waiting in {queues}{oldest}.",
        pluralize(jobs, "job", "jobs")
    );
    let mut finding = Finding::new(
        Kind::WorkerNone,
        summary,
        "Start one: 'posthaste work', or your own program.",
    );
    finding.jobs = jobs;
    finding.since = since;
    Some(finding)
}
