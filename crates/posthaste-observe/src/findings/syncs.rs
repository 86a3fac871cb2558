//! Findings about synced tables.

use crate::checks::{Checks, UnsyncedTable};
use crate::facts::SyncedTable;
use crate::finding::{Finding, Kind};
use crate::format::{age, one_line, pluralize};
use crate::snapshot::Snapshot;
use crate::thresholds::Thresholds;

pub(super) fn findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let syncs = snapshot.syncs.iter();
    syncs
        .filter_map(|sync| finding(snapshot, thresholds, sync))
        .collect()
}

fn finding(snapshot: &Snapshot, thresholds: &Thresholds, sync: &SyncedTable) -> Option<Finding> {
    let name = one_line(&sync.name, 80);
    let failing = sync.problems().iter().filter(|one| !one.given_up);
    let worst = failing.max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    if let Some(worst) = worst.filter(|one| one.seconds > thresholds.sync_failing.as_secs_f64()) {
        let summary = format!(
            "Sync {name} is failing: {} for {}: {}",
            pluralize(worst.jobs, "job fails", "jobs fail"),
            age(worst.seconds),
            one_line(&worst.reason, 300)
        );
        let remedy = "Fix what the error names. The jobs are retried automatically.";
        return Some(
            Finding::new(Kind::SyncFailing, summary, remedy).about(&sync.name, worst.jobs),
        );
    }
    late_sync_finding(snapshot, thresholds, sync).or_else(|| {
        let given_up = sync.problems().iter().find(|one| one.given_up)?;
        let summary = format!(
            "Sync {name}: {} given up: {}",
            pluralize(given_up.jobs, "job was", "jobs were"),
            one_line(&given_up.reason, 300)
        );
        let remedy = "Run 'posthaste sync audit' to find documents that differ. When the cause is \
                      fixed, run 'posthaste sync reindex' with their --ids, and delete the jobs.";
        Some(Finding::new(Kind::SyncGivenUp, summary, remedy).about(&sync.name, given_up.jobs))
    })
}

fn late_sync_finding(
    snapshot: &Snapshot,
    thresholds: &Thresholds,
    sync: &SyncedTable,
) -> Option<Finding> {
    let name = one_line(&sync.name, 80);
    let queue = posthaste_sync::queue(&sync.name);
    if snapshot.paused_at(&queue).is_some() {
        return None; // reported as a paused queue
    }
    let oldest = snapshot.oldest_waiting(&queue);
    let lag = sync
        .lag_seconds()
        .into_iter()
        .chain(oldest.map(|one| one.seconds));
    let lag = lag.reduce(f64::max)?;
    let changes = pluralize(sync.due, "change", "changes");
    let is_served = snapshot.live_worker_count(&queue, thresholds) > 0;
    if !is_served && oldest.is_some() && lag > thresholds.worker_silent.as_secs_f64() {
        let summary = format!(
            "Sync {name} is not running: {changes} waiting, the oldest for {}.",
            age(lag)
        );
        let remedy = "Start it: 'posthaste sync run', or your own program.";
        return Some(Finding::new(Kind::SyncNoWorker, summary, remedy).about(&sync.name, sync.due));
    }
    if lag <= thresholds.sync_late.as_secs_f64() {
        return None;
    }
    let summary = format!(
        "Sync {name} is late: {changes} due and not in its index for {}.",
        age(lag)
    );
    let remedy = "Check that 'posthaste sync run' is running, and how fast the index accepts \
                  writes.";
    Some(Finding::new(Kind::SyncLate, summary, remedy).about(&sync.name, sync.due))
}

pub(super) fn check_findings(checks: &Checks) -> Vec<Finding> {
    checks.unsynced.iter().map(unsynced_table_finding).collect()
}

/// Partitions that are named: a table may have thousands.
const MAX_NAMED_PARTITIONS: usize = 5;

fn unsynced_table_finding(table: &UnsyncedTable) -> Finding {
    let name = one_line(&table.name, 80);
    let finding = match table.is_dropped {
        true => Finding::new(
            Kind::SyncDropped,
            format!("The table of sync {name} was dropped, and its index is out of date."),
            "Remove its section from posthaste.toml, run SELECT posthaste.unsync_table(its name), \
             cancel its jobs, and delete the index.",
        ),
        false => {
            let shown = table.parts[..table.parts.len().min(MAX_NAMED_PARTITIONS)].join(", ");
            let more = match table.parts.len().saturating_sub(MAX_NAMED_PARTITIONS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Finding::new(
                Kind::SyncTriggers,
                format!(
                    "Sync {name}: triggers are missing, disabled or foreign on {shown}{more}. \
                     Changes do not reach its index."
                ),
                "Run 'posthaste sync install', then 'posthaste sync audit --contents --repair' for \
                 what changed meanwhile.",
            )
        }
    };
    finding.about(&table.name, 0)
}
