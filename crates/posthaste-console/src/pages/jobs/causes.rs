//! The causes of the given-up jobs of a list.

use posthaste::State as JobState;

use crate::address;
use crate::app::App;
use crate::causes::{Cause, group_by_cause};
use crate::fault::Fault;
use crate::filter::Filter;
use crate::format;
use crate::store::last_errors;

/// Jobs that are read at most.
const MAX_READ_JOBS: i64 = 5_000;
/// Causes that are shown at most.
const MAX_SHOWN_CAUSES: usize = 10;

/// Causes as rows of a table.
#[derive(Default)]
pub(super) struct CauseTable {
    pub(super) rows: Vec<CauseRow>,
    /// The number of causes that are not shown.
    pub(super) more: usize,
    /// The number of jobs that were read; `None` if all were.
    pub(super) read: Option<String>,
}

pub(super) struct CauseRow {
    pub(super) href: String,
    pub(super) jobs: String,
    pub(super) queue: String,
    pub(super) name: String,
    pub(super) error: String,
}

/// Returns the causes of dead and discarded jobs. Empty if the filter already selects an error, or
/// has a condition that this read does not support.
pub(super) async fn cause_table(app: &App, filter: &Filter) -> Result<CauseTable, Fault> {
    let failed = [JobState::Dead, JobState::Discarded];
    let state = filter.state.filter(|state| failed.contains(state));
    let is_narrower = filter.error.is_some() || filter.text.is_some() || filter.worker.is_some();
    let Some(state) = state.filter(|_| !is_narrower) else {
        return Ok(CauseTable::default());
    };
    let (errors, is_partial) = last_errors(&app.pool, state, filter, MAX_READ_JOBS).await?;
    let causes = group_by_cause(errors, &app.secrets);
    let shown = causes.iter().take(MAX_SHOWN_CAUSES);
    Ok(CauseTable {
        rows: shown.map(|cause| cause_row(cause, filter)).collect(),
        more: causes.len().saturating_sub(MAX_SHOWN_CAUSES),
        read: is_partial.then(|| format::count(MAX_READ_JOBS)),
    })
}

fn cause_row(cause: &Cause, filter: &Filter) -> CauseRow {
    let [_, _, tag, key] = filter.are_prefixes;
    let selected = Filter {
        queue: Some(cause.queue.clone()),
        name: Some(cause.name.clone()),
        are_prefixes: [false, false, tag, key],
        error: Some(cause.error.clone()),
        is_cause: true,
        ..filter.clone()
    };
    CauseRow {
        href: address::filtered_jobs("/dead", &selected),
        jobs: format::count(cause.jobs),
        queue: format::one_line(&cause.queue, 60),
        name: format::one_line(&cause.name, 80),
        error: format::one_line(&cause.error, 160),
    }
}
