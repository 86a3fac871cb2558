//! A line for each action: who did what to what, and what came of it.

use crate::guard::Visit;
use crate::store::StoreError;

/// Where these lines go.
const TARGET: &str = "posthaste::console::audit";

/// Says what was done, and passes on what came of it.
pub(crate) fn log(
    visit: &Visit,
    action: &'static str,
    on: &str,
    result: Result<usize, StoreError>,
) -> Result<usize, StoreError> {
    let (who, peer) = (&*visit.who, visit.peer.as_deref().unwrap_or("unknown"));
    match &result {
        Ok(jobs) => {
            let outcome = "done";
            tracing::info!(target: TARGET, who, peer, action, on, jobs, outcome, "an action");
        }
        Err(error) => {
            let (jobs, outcome) = (0, "failed");
            tracing::info!(
                target: TARGET, who, peer, action, on, jobs, outcome, %error, "an action"
            );
        }
    }
    result
}
