//! Derives findings from a snapshot: pure decisions, one file for each subject.

mod captures;
mod jobs;
mod queues;
mod relays;
mod rights;
mod server;
mod store;
mod syncs;
mod transactions;
mod workers;

use crate::checks::{Checks, MIN_SERVER_VERSION};
use crate::finding::{Finding, sort};
use crate::snapshot::Snapshot;
use crate::thresholds::Thresholds;

/// Returns all findings of a snapshot, the most urgent first.
pub fn findings(snapshot: &Snapshot, thresholds: &Thresholds) -> Vec<Finding> {
    let mut found = server::findings(&snapshot.server);
    found.extend(store::findings(snapshot));
    // No worker uses a copy, and its figures are those of the original.
    if !snapshot.store.needs_rebase {
        found.extend(workers::findings(snapshot, thresholds));
        found.extend(queues::findings(snapshot, thresholds));
        found.extend(relays::findings(snapshot, thresholds));
        found.extend(syncs::findings(snapshot, thresholds));
        found.extend(captures::findings(snapshot));
        found.extend(jobs::findings(snapshot, thresholds));
    }
    found.extend(transactions::findings(&snapshot.holders, thresholds));
    found.extend(transactions::ended_transactions_finding(snapshot));
    sort(&mut found);
    found
}

/// Returns all findings of the checks and of a snapshot that was read with them, the most urgent
/// first.
pub fn check_findings(
    checks: &Checks,
    snapshot: Option<&Snapshot>,
    thresholds: &Thresholds,
) -> Vec<Finding> {
    let mut found = match snapshot {
        Some(snapshot) => findings(snapshot, thresholds),
        None => {
            let mut found = server::findings(&checks.server);
            found.extend(transactions::findings(&checks.holders, thresholds));
            found
        }
    };
    if checks.needs_rebase && snapshot.is_none_or(|one| !one.store.needs_rebase) {
        found = vec![store::restored_store_finding()];
    }
    found.extend(server::check_findings(checks));
    if checks.server.version_number >= MIN_SERVER_VERSION {
        found.extend(rights::findings(checks));
        found.extend(store::check_findings(checks));
        found.extend(syncs::check_findings(checks));
        found.extend(captures::check_findings(checks));
        found.extend(transactions::check_findings(checks));
    }
    sort(&mut found);
    found
}

#[cfg(test)]
mod tests;
