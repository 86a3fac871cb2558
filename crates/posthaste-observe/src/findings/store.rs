//! Findings about the store as a whole: copies, sequences, clocks, segments.

use crate::checks::Checks;
use crate::facts::StoreState;
use crate::finding::{Finding, Kind};
use crate::snapshot::Snapshot;

/// Untruncated segments from which they are reported.
const MIN_UNTRUNCATED_SEGMENTS: i64 = 3;
/// Steps of the clock from which they are reported, in seconds.
const MIN_SECONDS_BACK: i64 = 2;
const MIN_SECONDS_AHEAD: i64 = 3_600;

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let store = &snapshot.store;
    if store.needs_rebase {
        return vec![restored_store_finding()];
    }
    let mut found: Vec<Finding> = refused_site_findings(store).collect();
    if store.seconds_ahead >= MIN_SECONDS_BACK {
        found.push(Finding::new(
            Kind::StoreClockBack,
            format!(
                "The server's clock stepped back: the store holds times that are {} s ahead of \
                 it. Jobs that are due by then run at once, and retries do not back off.",
                store.seconds_ahead
            ),
            "A worker that does maintenance corrects this within a minute. If the problem \
             persists, end the sessions that are reported as transaction.lock or transaction.long, \
             and synchronize the clocks of all servers (NTP).",
        ));
    }
    if store.has_leader && store.seconds_jumped >= MIN_SECONDS_AHEAD {
        found.push(Finding::new(
            Kind::StoreClockAhead,
            format!(
                "The server's clock stepped ahead, or no worker did maintenance for long: history \
                 is kept for {} s longer.",
                store.seconds_jumped
            ),
            "If the clock is wrong, correct it and redrive the jobs that expired. If it is right, \
             this ends by itself.",
        ));
    }
    let segments = snapshot.segments.untruncated();
    if segments >= MIN_UNTRUNCATED_SEGMENTS {
        found.push(Finding::new(
            Kind::StoreSegments,
            format!("{segments} segments of the queue cannot be truncated, and disk usage grows."),
            "End the session that holds a lock on the queue's tables, or wait for the oldest \
             running job. Run posthaste doctor to find the session.",
        ));
    }
    found
}

pub(super) fn restored_store_finding() -> Finding {
    Finding::new(
        Kind::StoreRestored,
        "The database was restored, copied, upgraded or loaded, and its jobs were not taken over: \
         no worker runs jobs here.",
        "Stop all workers and run 'posthaste rebase' once.",
    )
}

fn refused_site_findings(store: &StoreState) -> impl Iterator<Item = Finding> {
    let owner = store.site.as_deref().unwrap_or("another site");
    store.refused.iter().map(move |site| {
        let summary = format!("A process is waiting: {owner} owns this store, not {site}.");
        Finding::new(
            Kind::StoreSite,
            summary,
            "If this database is a copy that workers should run, run 'posthaste adopt' there once, \
             with '--discard' to remove the jobs that came with it. If it is the original, correct \
             [site] or DATABASE_URL of that process.",
        )
        .about(site, 0)
    })
}

pub(super) fn check_findings(checks: &Checks) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(schema) = &checks.schema {
        // The remedy in the library's error is for programs.
        let remedy = format!("; {}", posthaste::__private::MIGRATE);
        let problem = schema.split(&remedy).next().unwrap_or(schema);
        found.push(Finding::new(
            Kind::SchemaMismatch,
            format!("The schema does not match this program: {problem}."),
            "Run 'posthaste migrate' with the newest version that uses this database.",
        ));
    }
    if checks.ids_behind {
        found.push(Finding::new(
            Kind::StoreSequence,
            "The sequence of job ids is below ids that are in use, as after a logical \
             replication: new jobs would get the ids of other jobs.",
            "Before anything is enqueued, stop all workers and run 'posthaste rebase' once. It \
             moves the sequence above every known id.",
        ));
    }
    found
}
