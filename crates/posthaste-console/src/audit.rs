//! Writes a line of the log for each action: the user, the action, its object and its outcome.

use crate::action::{Action, Moved, Progress};
use crate::store::StoreError;
use crate::visit::Visit;

/// The target of these events.
const TARGET: &str = "posthaste::console::audit";

/// Logs an action with its outcome, and returns the outcome.
pub(crate) fn log(
    visit: &Visit,
    action: &'static str,
    on: &str,
    result: Result<usize, StoreError>,
) -> Result<usize, StoreError> {
    match &result {
        Ok(jobs) => say(visit, action, on, *jobs, "done"),
        Err(error) => refused(visit, action, on, error),
    }
    result
}

/// Logs that an action on all jobs of a filter began, or why it did not, and returns the outcome.
pub(crate) fn began(
    visit: &Visit,
    action: &'static str,
    on: &str,
    result: Result<i32, StoreError>,
) -> Result<i32, StoreError> {
    match &result {
        Ok(id) => {
            let on = format!("bulk action {id}: {on}");
            say(visit, action, &on, 0, "started");
        }
        Err(error) => refused(visit, action, on, error),
    }
    result
}

/// Logs that such an action has ended, with the total of its jobs.
pub(crate) fn ended(action: &Action, moved: &Moved, error: Option<&str>) {
    let (who, peer, on) = (&*action.who, "unknown", action.on());
    let (action, jobs) = (action.kind.name(), moved.jobs);
    let outcome = match moved.progress {
        Progress::Running => "started",
        Progress::Finished => "done",
        Progress::Stopped => "stopped",
        Progress::Failed => "failed",
    };
    tracing::info!(target: TARGET, who, peer, action, on, jobs, outcome, error, "an action");
}

fn say(visit: &Visit, action: &str, on: &str, jobs: usize, outcome: &str) {
    let (who, peer) = (&*visit.who, visit.peer.as_deref().unwrap_or("unknown"));
    tracing::info!(target: TARGET, who, peer, action, on, jobs, outcome, "an action");
}

fn refused(visit: &Visit, action: &str, on: &str, error: &StoreError) {
    let (who, peer) = (&*visit.who, visit.peer.as_deref().unwrap_or("unknown"));
    let (jobs, outcome) = (0, "failed");
    tracing::info!(target: TARGET, who, peer, action, on, jobs, outcome, %error, "an action");
}
