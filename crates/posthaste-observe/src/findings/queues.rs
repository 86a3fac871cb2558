//! Findings about single queues.

use posthaste_relay::RelayState;

use crate::facts::QueueActivity;
use crate::finding::{Finding, Kind};
use crate::format::{age_with_seconds, one_line, pluralize, rate, time};
use crate::snapshot::{Snapshot, failing_since};
use crate::sums::Sums;
use crate::thresholds::Thresholds;

pub(super) fn findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let sums = snapshot.sums_by_queue();
    let of = |queue: &str| sums.get(queue).copied().unwrap_or_default();
    let waiting = snapshot.waiting_queues().into_iter();
    let waiting =
        waiting.filter_map(|queue| waiting_jobs_finding(snapshot, thresholds, queue, of(queue)));
    let failing = snapshot.windows.iter();
    let failing =
        failing.filter_map(|window| failing_queue_finding(window, thresholds, of(&window.queue)));
    let is_paused = |queue: &str| snapshot.paused_at(queue).is_some();
    let long = thresholds.length_above.iter();
    let long = long.filter(|(queue, _)| !is_paused(queue));
    let long = long.filter_map(|(queue, most)| long_queue_finding(queue, of(queue).due(), *most));
    let slow = thresholds.completed_below.iter();
    let slow = slow.filter(|(queue, _)| !is_paused(queue));
    let slow = slow.filter_map(|(queue, least)| {
        let rate = *snapshot.rates.get(queue)?;
        slow_queue_finding(queue, rate, *least, of(queue).due())
    });
    let all = waiting.chain(failing).chain(long).chain(slow);
    all.collect()
}

fn long_queue_finding(queue: &str, due: i64, most: f64) -> Option<Finding> {
    let name = one_line(queue, 80);
    let summary = format!(
        "Queue {name} is long: {} due, more than {most}.",
        pluralize(due, "job is", "jobs are")
    );
    let remedy = "Add workers, or enqueue less.";
    (due as f64 > most).then(|| Finding::new(Kind::QueueLong, summary, remedy).about(queue, due))
}

fn slow_queue_finding(queue: &str, rate: f64, least: f64, due: i64) -> Option<Finding> {
    let name = one_line(queue, 80);
    let summary =
        format!("Queue {name} is slow: {rate:.1} jobs a minute are completed, fewer than {least}.");
    let remedy = match due {
        0 => "No jobs are due: find out why the producer stopped.",
        _ => "Jobs are due: find out what its workers wait for, or start more.",
    };
    (rate < least).then(|| Finding::new(Kind::QueueSlow, summary, remedy).about(queue, due))
}

/// Returns the finding about jobs that wait: the queue is paused, has no worker, or is late.
fn waiting_jobs_finding(
    snapshot: &Snapshot,
    thresholds: &Thresholds,
    queue: &str,
    sums: Sums,
) -> Option<Finding> {
    let (now, oldest) = (snapshot.server.at, snapshot.oldest_waiting(queue)?);
    let name = one_line(queue, 80);
    let jobs = pluralize(sums.available, "job", "jobs");
    let since = time(oldest.since, now);
    if let Some(paused_at) = snapshot.paused_at(queue) {
        let at = time(paused_at, now);
        let summary = format!("Queue {name} is paused since {at}: {jobs} waiting.");
        let remedy = "Resume it when its jobs may run. Until then jobs may expire.";
        let finding = Finding::new(Kind::QueuePaused, summary, remedy);
        return Some(finding.about(queue, sums.available).since(paused_at));
    }
    if snapshot.live_worker_count(queue, thresholds) == 0 {
        // Queues of relays and syncs have findings with their own remedies; if no worker runs at
        // all, one finding about the store covers every queue.
        let has_own = snapshot.relays_of(queue).next().is_some()
            || snapshot.sync_of(queue).is_some()
            || snapshot.live_workers(thresholds).next().is_none();
        let summary =
            format!("Queue {name} has no worker: {jobs} waiting, the oldest since {since}.");
        let remedy = "Start a worker that serves it, or correct the queue's name where its jobs \
                      are enqueued.";
        let finding = || Finding::new(Kind::QueueNoWorker, summary, remedy);
        return (!has_own).then(|| finding().about(queue, sums.available).since(oldest.since));
    }
    let limit = thresholds.queue_late.as_secs_f64();
    let relay_fails = snapshot
        .relays_of(queue)
        .any(|relay| relay.state == RelayState::Stopped || failing_since(relay).is_some());
    if oldest.seconds <= limit || relay_fails {
        return None;
    }
    let summary = format!(
        "Queue {name} is late: its oldest job has waited for {} (limit {}), since {since}; {jobs} \
         waiting.",
        age_with_seconds(oldest.seconds),
        age_with_seconds(limit)
    );
    let finding = Finding::new(Kind::QueueLate, summary, late_remedy(snapshot, queue));
    Some(finding.about(queue, sums.available).since(oldest.since))
}

fn late_remedy(snapshot: &Snapshot, queue: &str) -> String {
    let limit = snapshot
        .queue_settings(queue)
        .and_then(|one| one.rate.zip(one.per));
    if let Some((jobs, per)) = limit {
        let per = age_with_seconds(per);
        let jobs = pluralize(jobs, "job", "jobs");
        return format!("It is limited to {jobs} in {per}: raise the limit, or wait.");
    }
    let window = snapshot.windows.iter().find(|one| one.queue == queue);
    match window.filter(|one| one.seconds >= 30.0) {
        Some(window) => format!(
            "{} jobs a second are completed and {} are enqueued: add workers, or make jobs faster.",
            rate(window.completed as f64 / window.seconds),
            rate(window.enqueued as f64 / window.seconds)
        ),
        None => "Add workers, or make jobs faster.".to_owned(),
    }
}

/// Returns a finding if too many attempts of a queue failed.
fn failing_queue_finding(
    window: &QueueActivity,
    thresholds: &Thresholds,
    sums: Sums,
) -> Option<Finding> {
    if !window.is_failing(thresholds) {
        return None;
    }
    let name = one_line(&window.queue, 80);
    let attempts = window.failed + window.completed;
    let error = window.error.as_ref();
    let error = error.map_or_else(
        || ".".to_owned(),
        |error| format!(": {}", one_line(error, 160)),
    );
    let summary = format!(
        "Queue {name} is failing: {} of {} failed in the last {}{error}",
        crate::format::count(window.failed),
        pluralize(attempts, "attempt", "attempts"),
        age_with_seconds(window.seconds)
    );
    let remedy = "Fix the cause. Failed jobs are retried with growing delays until they have used \
                  up their attempts.";
    let jobs = sums.retrying + sums.available;
    Some(Finding::new(Kind::QueueFailing, summary, remedy).about(&window.queue, jobs))
}
