//! Actions on all jobs of a filter, as rows of tables.

use jiff::Timestamp;

use super::Cell;
use crate::action::{Action, Progress};
use crate::address;
use crate::format;

/// An action, as a row of a table.
#[derive(Clone, Debug)]
pub(crate) struct BulkLine {
    pub(crate) id: i32,
    pub(crate) title: &'static str,
    pub(crate) href: String,
    /// Its filter; empty for all jobs.
    pub(crate) filter: String,
    pub(crate) who: String,
    pub(crate) started: String,
    /// Its duration; `None` while it is running.
    pub(crate) took: Option<String>,
    pub(crate) progress: Progress,
    pub(crate) state: Cell,
    pub(crate) done: Cell,
    /// How many jobs are done, as a number, and of how many, if that is known.
    pub(crate) value: Cell,
    pub(crate) max: Option<i64>,
    pub(crate) last_error: Option<String>,
}

pub(crate) fn bulk_line(action: &Action, now: Timestamp) -> BulkLine {
    let key = |what: &str| format!("bulk.{}.{what}", action.id);
    let (state, class) = state_text(action);
    let max = action.expected.map(|jobs| jobs.min(action.at_most).max(1));
    let took = action
        .ended_at
        .map(|at| format::seconds_between(action.started_at, at));
    BulkLine {
        id: action.id,
        title: action.kind.title(),
        href: address::bulk_action(action.id),
        filter: format::one_line(&action.filter, 300),
        who: format::one_line(&action.who, 60),
        started: format::time(action.started_at, now),
        took: took.map(|took| format::age_with_seconds(took.max(0.0))),
        progress: action.progress,
        state: Cell::new(key("state"), state.to_owned(), class),
        done: Cell::new(key("done"), done_text(action, max), ""),
        value: Cell::new(key("value"), action.jobs.to_string(), ""),
        max,
        last_error: action
            .last_error
            .as_ref()
            .map(|error| format::one_line(error, 400)),
    }
}

/// Returns a word for its state, and the CSS class.
fn state_text(action: &Action) -> (&'static str, &'static str) {
    match action.progress {
        Progress::Running if !action.is_ours => ("of another database", "paused"),
        Progress::Running if action.stopped_by.is_some() => ("stopping", "paused"),
        Progress::Running if action.last_error.is_some() => ("tries again", "retrying"),
        Progress::Running if !action.is_driven => ("waiting for a console", "paused"),
        Progress::Running => ("running", "running"),
        Progress::Finished => ("finished", "completed"),
        Progress::Stopped => ("stopped", "paused"),
        Progress::Failed => ("failed", "failing"),
    }
}

/// Describes how many jobs it has done, and of how many.
fn done_text(action: &Action, max: Option<i64>) -> String {
    let jobs = format::count(action.jobs);
    match (action.progress, max) {
        (Progress::Finished, _) => jobs,
        (_, Some(max)) => format!("{jobs} of {}", format::count(max)),
        (_, None) => format!("{jobs}, of at most {}", format::count(action.at_most)),
    }
}
