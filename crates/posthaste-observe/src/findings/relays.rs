//! Findings about relays.

use posthaste_relay::{RelayReport, RelayState};

use crate::finding::{Finding, Kind};
use crate::format::{age, one_line, pluralize, seconds_between};
use crate::snapshot::{Snapshot, failing_since, relay_name};
use crate::thresholds::Thresholds;

pub(super) fn findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let relays = snapshot.relays.iter();
    relays
        .filter_map(|relay| finding(snapshot, thresholds, relay))
        .collect()
}

fn finding(snapshot: &Snapshot, thresholds: &Thresholds, relay: &RelayReport) -> Option<Finding> {
    let is_served = snapshot.relays_of(&relay.queue).any(|other| {
        other.worker != relay.worker
            && other.state == RelayState::Up
            && failing_since(other).is_none()
    });
    if is_served {
        return None;
    }
    let (name, queue) = (one_line(relay_name(relay), 80), one_line(&relay.queue, 80));
    let sums = snapshot.sums_where(|counter| counter.queue == relay.queue);
    let waiting = sums.available + sums.retrying;
    let jobs = pluralize(waiting, "job", "jobs");
    if relay.state == RelayState::Stopped {
        let oldest = snapshot.oldest_waiting(&relay.queue)?;
        // The queue of a relay may also be served by workers.
        if snapshot.live_worker_count(&relay.queue, thresholds) > 0 {
            return None;
        }
        let summary = format!("Queue {queue} has no running relay: {jobs} waiting.");
        let remedy = format!("Start relay {name}: 'posthaste relay run'.");
        let finding = Finding::new(Kind::RelayStopped, summary, remedy);
        return Some(
            finding
                .about(relay_name(relay), waiting)
                .since(oldest.since),
        );
    }
    let since = failing_since(relay)?;
    let time = age(seconds_between(since, snapshot.server.at).max(0.0));
    let error = relay.status.last_error.as_deref();
    let error = error.map_or_else(String::new, |error| format!(": {}", one_line(error, 160)));
    let (kind, summary, remedy) = match relay.state {
        RelayState::Silent => (
            Kind::RelaySilent,
            format!("Relay {name} has not reported for {time}: {jobs} waiting."),
            "Check its process: it was killed or stopped, or cannot reach the database.",
        ),
        RelayState::Down => (
            Kind::RelayDown,
            format!(
                "The destination of relay {name} has not answered for {time}; {jobs} \
                 waiting{error}"
            ),
            "Repair the destination. Jobs wait, no attempt is counted, and they are sent when it \
             answers.",
        ),
        _ => (
            Kind::RelayFailing,
            format!(
                "The destination of relay {name} has accepted nothing for {time}; {jobs} \
                 waiting{error}"
            ),
            "Fix what the error names.",
        ),
    };
    Some(
        Finding::new(kind, summary, remedy)
            .about(relay_name(relay), waiting)
            .since(since),
    )
}
