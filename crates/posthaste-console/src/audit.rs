//! Writes a line of the log for each action: the user, the action, its object and its outcome.

use crate::action::{Action, ActionState, Progress};
use crate::store::StoreError;
use crate::visit::Visit;

/// The target of these events.
const AUDIT_TARGET: &str = "posthaste::console::audit";

/// Logs an action with its outcome, and returns the outcome.
pub(crate) fn log_outcome(
    visit: &Visit,
    action: &'static str,
    on: &str,
    result: Result<usize, StoreError>,
) -> Result<usize, StoreError> {
    match &result {
        Ok(jobs) => emit_success(visit, action, on, *jobs, "done"),
        Err(error) => emit_failure(visit, action, on, error),
    }
    result
}

/// Logs that an action on all jobs of a filter began, or why it did not, and returns the outcome.
pub(crate) fn log_bulk_begin(
    visit: &Visit,
    action: &'static str,
    on: &str,
    result: Result<i32, StoreError>,
) -> Result<i32, StoreError> {
    match &result {
        Ok(id) => {
            let on = format!("bulk action {id}: {on}");
            emit_success(visit, action, &on, 0, "started");
        }
        Err(error) => emit_failure(visit, action, on, error),
    }
    result
}

/// Logs that such an action has ended, with the total of its jobs.
pub(crate) fn log_bulk_end(action: &Action, moved: &ActionState, error: Option<&str>) {
    let (who, peer, on) = (&*action.who, "unknown", action.log_description());
    let (action, jobs) = (action.kind.name(), moved.jobs);
    let outcome = match moved.progress {
        Progress::Running => "started",
        Progress::Finished => "done",
        Progress::Stopped => "stopped",
        Progress::Failed => "failed",
    };
    tracing::info!(target: AUDIT_TARGET, who, peer, action, on, jobs, outcome, error, "an action");
}

fn emit_success(visit: &Visit, action: &str, on: &str, jobs: usize, outcome: &str) {
    let (who, peer) = (&*visit.who, visit.peer.as_deref().unwrap_or("unknown"));
    tracing::info!(target: AUDIT_TARGET, who, peer, action, on, jobs, outcome, "an action");
}

fn emit_failure(visit: &Visit, action: &str, on: &str, error: &StoreError) {
    let (who, peer) = (&*visit.who, visit.peer.as_deref().unwrap_or("unknown"));
    let (jobs, outcome) = (0, "failed");
    tracing::info!(target: AUDIT_TARGET, who, peer, action, on, jobs, outcome, %error, "an action");
}
