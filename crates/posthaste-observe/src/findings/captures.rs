//! Findings about captures.

use jiff::{SignedDuration, Timestamp};
use posthaste_capture::Overview;

use crate::checks::{CaptureProblem, Checks};
use crate::finding::{Finding, Kind};
use crate::format::{bytes, one_line, pluralize};
use crate::snapshot::Snapshot;

/// Log that waits for a capture without a process before that is reported, in bytes: a capture may
/// be run periodically.
const MIN_RETAINED_BYTES: i64 = 64 << 20;
/// Log since the last mark before a running capture counts as lagging, in bytes.
const MIN_LAG_BYTES: i64 = 1 << 30;

/// Time without a delivery before a waiting capture is reported.
const MIN_WAITING_TIME: SignedDuration = SignedDuration::from_secs(30);
/// Time without sending directly before a spilling capture is reported.
const MIN_SPILLING_TIME: SignedDuration = SignedDuration::from_mins(15);

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let captures = snapshot.captures.iter();
    captures
        .flat_map(|capture| {
            let path = path_finding(capture, snapshot.server.at);
            [
                state_finding(capture),
                path,
                copy_finding(capture),
                gap_finding(capture),
            ]
        })
        .flatten()
        .collect()
}

pub(super) fn check_findings(checks: &Checks) -> Vec<Finding> {
    checks.captures.iter().map(problem_finding).collect()
}

fn problem_finding(problem: &CaptureProblem) -> Finding {
    match problem {
        CaptureProblem::Publication(name) => {
            let shown = one_line(name, 80);
            let summary = format!("The publication of capture {shown} was dropped or recreated.");
            let remedy = "Run 'posthaste capture begin' with its name, and transfer what changed \
                          meanwhile.";
            Finding::new(Kind::CapturePublication, summary, remedy).about(name, 0)
        }
        CaptureProblem::Identity { capture, table } => {
            let (shown, table) = (one_line(capture, 80), one_line(table, 120));
            let summary = format!(
                "{table} of capture {shown} has no replica identity: its UPDATE and DELETE fail."
            );
            let remedy =
                "Give the table a primary key, or run ALTER TABLE … REPLICA IDENTITY FULL.";
            Finding::new(Kind::CaptureIdentity, summary, remedy).about(capture, 0)
        }
        CaptureProblem::Limit => {
            let summary = "If a capture stops, the log of the server grows without limit.";
            let remedy = "Set max_slot_wal_keep_size to a size that fits on the disk.";
            Finding::new(Kind::CaptureLimit, summary, remedy)
        }
        CaptureProblem::Unsynchronized(name) => {
            let shown = one_line(name, 80);
            let summary =
                format!("A failover causes a gap in capture {shown}: its slot does not fail over.");
            let remedy = "Set failover = true, pause the capture, and run 'posthaste capture \
                          install' with its name.";
            Finding::new(Kind::CaptureFailover, summary, remedy).about(name, 0)
        }
        CaptureProblem::NoSynchronization => {
            let summary = "No standby synchronizes the slots of captures: a failover causes a gap.";
            let remedy = "On the standby, set sync_replication_slots = on, hot_standby_feedback = \
                          on, primary_slot_name, and dbname in primary_conninfo.";
            Finding::new(Kind::CaptureFailover, summary, remedy)
        }
        CaptureProblem::StandbysBehind => {
            let summary = "A standby may take over without the latest captured changes.";
            let remedy = "Set synchronized_standby_slots to the slots of the standbys that may \
                          take over.";
            Finding::new(Kind::CaptureFailover, summary, remedy)
        }
        CaptureProblem::StandbyMissing(slot) => {
            let shown = one_line(slot, 80);
            let summary = format!(
                "Captures are waiting: no standby uses slot {shown} of synchronized_standby_slots."
            );
            let remedy = "Start its standby, or remove the slot from synchronized_standby_slots.";
            Finding::new(Kind::CaptureStandby, summary, remedy).about(slot, 0)
        }
    }
}

fn state_finding(capture: &Overview) -> Option<Finding> {
    let name = one_line(&capture.name, 80);
    let waiting = capture.unconfirmed_bytes.unwrap_or(0);
    let is_paused = capture.paused_at.is_some();
    let found = if let Some(reason) = &capture.stopped {
        let summary = format!("Capture {name} has stopped: {}.", one_line(reason, 400));
        let remedy = "Follow the remedy that the error gives. Until then the server retains its \
                      log, or changes are lost.";
        Finding::new(Kind::CaptureStopped, summary, remedy)
    } else if capture.is_missing || capture.wal_status == "lost" {
        let summary = format!(
            "Capture {name}: its slot {} is lost.",
            one_line(&capture.slot, 80)
        );
        let remedy = "Run 'posthaste capture begin' with its name, and transfer what changed \
                      meanwhile.";
        Finding::new(Kind::CaptureStopped, summary, remedy)
    } else if is_paused && waiting <= MIN_LAG_BYTES {
        let retained = bytes(capture.retained_bytes.unwrap_or(waiting));
        let summary = format!(
            "Capture {name} is paused, and the server retains {retained} of its \
                               log."
        );
        let remedy = "Run 'posthaste capture resume' with its name.";
        Finding::new(Kind::CapturePaused, summary, remedy)
    } else if !capture.is_active && !is_paused && waiting > MIN_RETAINED_BYTES {
        let retained = bytes(capture.retained_bytes.unwrap_or(waiting));
        let summary =
            format!("Capture {name} is not running, and the server retains {retained} of its log.");
        let remedy = "Start it: 'posthaste capture run' or 'posthaste up'. If you do not need it, \
                      run 'posthaste capture remove'.";
        Finding::new(Kind::CaptureNotRunning, summary, remedy)
    } else if waiting > MIN_LAG_BYTES {
        let (waiting, is_paused) = (
            bytes(waiting),
            if is_paused { ", which is paused" } else { "" },
        );
        let summary = format!(
            "{waiting} of log was written since the last mark of capture {name}{is_paused}."
        );
        let remedy = "Check its log, and long-running transactions: the server sends a transaction \
                      when it commits.";
        Finding::new(Kind::CaptureBehind, summary, remedy)
    } else {
        return None;
    };
    Some(found.about(&capture.name, 0))
}

fn path_finding(capture: &Overview, now: Timestamp) -> Option<Finding> {
    let name = one_line(&capture.name, 80);
    let path = capture.path.as_deref()?;
    let since = capture.indirect_since?;
    let spills = now.duration_since(since);
    let found = if capture.is_stopped() || !capture.is_active {
        return None;
    } else if path == "full" {
        let retained = bytes(capture.retained_bytes.unwrap_or(0));
        let summary = format!(
            "Capture {name} has reached spill_most, and the server retains {retained} of its log."
        );
        let remedy = "Check the route's destination and its relay, or raise spill_most.";
        Finding::new(Kind::CaptureFull, summary, remedy)
    } else if path == "waiting" && spills > MIN_WAITING_TIME {
        let problem = one_line(capture.path_problem.as_deref().unwrap_or("no answer"), 300);
        let summary = format!("Capture {name} waits, its destination takes nothing: {problem}.");
        let remedy = "Check the route's destination. Events wait in the server's log, and become \
                      jobs of the route later.";
        Finding::new(Kind::CaptureWaiting, summary, remedy).since(since)
    } else if spills > MIN_SPILLING_TIME {
        let minutes = spills.as_mins();
        let summary = format!("Capture {name} has not sent directly for {minutes} minutes.");
        let remedy = "Check the route's destination, and whether its relay runs and keeps up.";
        Finding::new(Kind::CaptureSpilling, summary, remedy)
    } else {
        return None;
    };
    Some(found.about(&capture.name, 0))
}

fn copy_finding(capture: &Overview) -> Option<Finding> {
    let problem = one_line(capture.copy_problem.as_deref()?, 300);
    let name = one_line(&capture.name, 80);
    let summary = format!("Capture {name}: a copy failed: {problem}.");
    let remedy = "Run 'posthaste capture copy' with its name, the table and --cancel, fix the \
                  cause, and start the copy again.";
    Some(Finding::new(Kind::CaptureCopy, summary, remedy).about(&capture.name, 0))
}

fn gap_finding(capture: &Overview) -> Option<Finding> {
    if capture.gaps == 0 {
        return None;
    }
    let name = one_line(&capture.name, 80);
    let gaps = pluralize(capture.gaps, "gap", "gaps");
    let summary = format!("Capture {name} has {gaps} in its captured changes.");
    let remedy = "Run 'posthaste capture gaps', transfer what is missing, and accept the gap \
                  there.";
    Some(Finding::new(Kind::CaptureGap, summary, remedy).about(&capture.name, 0))
}
