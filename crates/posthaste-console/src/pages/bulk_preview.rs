//! Actions on all jobs that a filter selects: a page with their number, and the start.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};

use super::frame::Frame;
use super::{check_may_act, page};
use crate::action::Kind;
use crate::address;
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::filter::Filter;
use crate::form::{Fields, Form, Query};
use crate::format;
use crate::guard::Visit;
use crate::store::{self, NewAction, StoreError};

/// The most jobs of one action.
const MAX_JOBS: u32 = 50_000_000;
/// Given-up jobs that are read to count those that match, at most.
const MAX_COUNTED_JOBS: i64 = 200_000;

/// Returns the label of its button.
fn button_label(kind: Kind) -> &'static str {
    match kind {
        Kind::Retry => "Retry them",
        Kind::Cancel => "Cancel them",
        Kind::Redrive => "Redrive them",
        Kind::Delete => "Delete them permanently",
    }
}

fn explanation(kind: Kind) -> &'static str {
    match kind {
        Kind::Retry => {
            "They run as soon as a worker is free and keep their counted attempts. Each is retried \
             once."
        }
        Kind::Cancel => {
            "Waiting jobs never run. Running jobs are asked to stop and are ended after five \
             seconds. They are kept as cancelled and can be redriven."
        }
        Kind::Redrive => {
            "They are redriven once, the oldest first. Each keeps its id and delivery id and gets \
             all its attempts again. A job whose unique key another job holds is not redriven."
        }
        Kind::Delete => {
            "They are deleted with arguments and errors, the oldest first, and cannot be redriven."
        }
    }
}

/// Returns the equivalent command, if there is one.
fn equivalent_command(kind: Kind, filter: &Filter, at_most: u32) -> Option<String> {
    if !matches!(kind, Kind::Retry | Kind::Redrive) || !filter.is_expressible_as_options() {
        return None;
    }
    let options = match filter.options() {
        none if none.is_empty() => " --all".to_owned(),
        options => options,
    };
    let name = kind.name();
    Some(format!("posthaste jobs {name}{options} --limit {at_most}"))
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct BulkPage {
    frame: Frame,
    kind: Kind,
    says: &'static str,
    /// The filter as it is typed, with its times resolved, so that the action applies to the jobs
    /// that were counted.
    filter: String,
    /// The number of jobs, in words.
    count: String,
    is_none: bool,
    at_most: u32,
    most: u32,
    /// The equivalent command, or else the conditions of an SQL statement.
    command: Option<String>,
    conditions: String,
    button: &'static str,
    key: &'static str,
    done_back: &'static str,
}

pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let kind = read_kind(&fields)?;
    let figures = app.collector.figures().await?;
    let filter = job_filter(&fields, kind, &figures)?;
    let number = count_jobs(&app, &figures, kind, &filter).await?;
    let at_most = fields.number_within("at_most", (1, MAX_JOBS))?;
    let at_most = at_most.unwrap_or_else(|| number.upper_bound(kind, &figures, &filter));
    let current = if kind.applies_to_given_up() {
        "/dead"
    } else {
        "/jobs"
    };
    let bulk = BulkPage {
        frame: Frame::new(&app, &visit, &figures, kind.title(), current),
        kind,
        says: explanation(kind),
        count: number.text(),
        is_none: number == JobCount::Exactly(0),
        at_most,
        most: MAX_JOBS,
        command: equivalent_command(kind, &filter, at_most),
        conditions: filter.conditions(kind.applies_to_given_up()),
        button: button_label(kind),
        key: match kind {
            Kind::Retry | Kind::Redrive => "r",
            Kind::Cancel => "c",
            Kind::Delete => "",
        },
        filter: filter.to_string(),
        done_back: current,
    };
    Ok(page(StatusCode::OK, &bulk))
}

fn read_kind(fields: &Fields) -> Result<Kind, Fault> {
    let what = "an action by filter is retry, cancel, redrive or delete";
    Kind::from_name(fields.text("do")?).ok_or_else(|| Fault::bad_request(what))
}

/// Returns the filter, or a fault if the database cannot act by one of its conditions.
fn job_filter(fields: &Fields, kind: Kind, figures: &Figures) -> Result<Filter, Fault> {
    let typed = fields.get("filter").unwrap_or_default();
    let filter = Filter::parse(typed, figures.snapshot.server.at).map_err(Fault::bad_request)?;
    if filter.text.is_some() || filter.id.is_some() || filter.worker.is_some() {
        let what = "actions by filter cannot use text:, worker: or id:";
        return Err(Fault::new(
            StatusCode::BAD_REQUEST,
            what,
            "Select the jobs in the list.",
        ));
    }
    if kind == Kind::Delete && filter.state.is_none() {
        return Err(Fault::bad_request(
            "choose a state to delete, such as state:dead",
        ));
    }
    if filter
        .state
        .is_some_and(|state| !kind.states().contains(&state))
    {
        let names: Vec<&str> = kind
            .states()
            .iter()
            .map(|state| format::state_name(*state))
            .collect();
        let what = format!("{} is for jobs that are {}", kind.name(), names.join(", "));
        return Err(Fault::bad_request(what));
    }
    Ok(filter.with_absolute_times())
}

/// The number of jobs that a filter selects.
#[derive(PartialEq, Eq)]
enum JobCount {
    Exactly(i64),
    AtLeast(i64),
    /// Counting them would cost more than acting on them.
    Unknown,
}

impl JobCount {
    fn text(&self) -> String {
        match self {
            Self::Exactly(jobs) => format::pluralize(*jobs, "job", "jobs"),
            Self::AtLeast(jobs) => format!("{} or more", format::pluralize(*jobs, "job", "jobs")),
            Self::Unknown => "Some jobs".to_owned(),
        }
    }

    /// Returns the number, if all were counted.
    fn exact(&self) -> Option<i64> {
        match self {
            Self::Exactly(jobs) => Some(*jobs),
            Self::AtLeast(_) | Self::Unknown => None,
        }
    }

    /// Returns an upper bound of the matching jobs: their number if all were counted, or else the
    /// number without the conditions that counters do not distinguish.
    fn upper_bound(&self, kind: Kind, figures: &Figures, filter: &Filter) -> u32 {
        let jobs = self
            .exact()
            .unwrap_or_else(|| counted_jobs(kind, figures, filter));
        u32::try_from(jobs).unwrap_or(MAX_JOBS).clamp(1, MAX_JOBS)
    }
}

/// Returns how many jobs match by queue, name, tag and state.
fn counted_jobs(kind: Kind, figures: &Figures, filter: &Filter) -> i64 {
    let sums = figures
        .snapshot
        .sums_where(|counter| filter.matches_counter(counter));
    let states = kind.states().iter();
    let matching = states.filter(|state| filter.state.is_none_or(|one| one == **state));
    matching.map(|state| sums.in_state(*state)).sum()
}

async fn count_jobs(
    app: &App,
    figures: &Figures,
    kind: Kind,
    filter: &Filter,
) -> Result<JobCount, StoreError> {
    if filter.is_uncounted() {
        return match kind {
            Kind::Retry | Kind::Cancel => Ok(JobCount::Unknown),
            Kind::Redrive | Kind::Delete => {
                let (jobs, is_bounded) =
                    store::count_given_up(&app.pool, filter, MAX_COUNTED_JOBS).await?;
                Ok(if is_bounded {
                    JobCount::AtLeast(jobs)
                } else {
                    JobCount::Exactly(jobs)
                })
            }
        };
    }
    Ok(JobCount::Exactly(counted_jobs(kind, figures, filter)))
}

pub(crate) async fn begin(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let kind = read_kind(&fields)?;
    let figures = app.collector.figures().await?;
    let filter = job_filter(&fields, kind, &figures)?;
    let number = count_jobs(&app, &figures, kind, &filter).await?;
    let at_most = fields.number_within("at_most", (1, MAX_JOBS))?;
    let at_most = at_most.unwrap_or_else(|| number.upper_bound(kind, &figures, &filter));
    let begun = NewAction {
        kind,
        filter: &filter.to_string(),
        at_most: i64::from(at_most),
        expected: number.exact(),
        who: &visit.who,
    };
    let on = format!("filter {filter}, at most {at_most}");
    let id = store::begin_action(&app.pool, app.driver.console_id(), &begun).await;
    let id = audit::log_bulk_begin(&visit, kind.name(), &on, id)?;
    app.driver.start();
    app.driver.wake();
    app.driver.wait_for_end(id).await;
    app.collector.invalidate().await;
    Ok(Redirect::to(&address::bulk_action(id)).into_response())
}
