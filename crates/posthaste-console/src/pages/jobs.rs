//! Lists of jobs, and of jobs that were given up.

mod causes;

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use posthaste::State as JobState;
use posthaste_observe::Sums;

use super::frame::{EXPIRED_JOBS_ADDRESS, Frame};
use super::page;
use causes::CauseTable;

use crate::address;
use crate::app::App;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::filter::Filter;
use crate::form::{Fields, Query};
use crate::format;
use crate::guard::Visit;
use crate::redact::{Piece, Redactor};
use crate::search::{JobSearch, SearchResult};
use crate::store::JobRow;
use crate::window::{Cursor, GIVEN_UP_STATES};

/// Jobs of a page by default, and the most that an address can request.
const DEFAULT_PAGE_JOBS: u32 = 50;
const MAX_PAGE_JOBS: u32 = 200;
/// The most characters of arguments in a row.
const MAX_ARGUMENT_CHARS: usize = 120;

const WAITING_STATES: [JobState; 7] = [
    JobState::Available,
    JobState::Running,
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Blocked,
    JobState::Awaiting,
    JobState::Quarantined,
];

/// States of jobs that are due later.
const DUE_LATER_STATES: [JobState; 2] = [JobState::Scheduled, JobState::Retrying];

/// A state to filter by.
struct StateChip {
    state: &'static str,
    count: String,
    href: String,
    is_on: bool,
}

/// A job, as a row of the table.
struct ListedJob {
    id: i64,
    name: String,
    tag: String,
    arguments: Vec<Piece>,
    state: &'static str,
    attempt: String,
    queue: String,
    when: String,
    error: String,
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    path: &'static str,
    /// The filter as it was typed.
    typed: String,
    /// Why the filter is invalid.
    problem: Option<String>,
    chips: Vec<StateChip>,
    rows: Vec<ListedJob>,
    /// Whether the list is one of jobs that were given up.
    is_given_up: bool,
    state: &'static str,
    next: Option<String>,
    beginning: String,
    is_cut: bool,
    is_gone: bool,
    lacks: &'static str,
    is_continued: bool,
    searches: bool,
    took: String,
    bulk: Vec<BulkLink>,
    causes: CauseTable,
}

/// A link to an action on all matching jobs.
struct BulkLink {
    href: String,
    says: String,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let (filter, problem) = match parse_typed_filter(&fields, &figures) {
        Ok(filter) => (filter, None),
        Err(problem) => (Filter::default(), Some(problem)),
    };
    list(&app, &visit, &fields, "/jobs", &figures, filter, problem).await
}

/// Parses the typed filter.
fn parse_typed_filter(fields: &Fields, figures: &Figures) -> Result<Filter, String> {
    let typed = fields.get("filter").unwrap_or_default();
    Filter::parse(typed, figures.snapshot.server.at)
}

/// Lists jobs that are due later, the next first.
pub(crate) async fn scheduled(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let parsed = parse_typed_filter(&fields, &figures).and_then(|filter| match filter.state {
        Some(state) if !DUE_LATER_STATES.contains(&state) => Err(format!(
            "this page lists scheduled and retrying jobs, not {state} ones"
        )),
        _ => Ok(filter),
    });
    let (filter, problem) = match parsed {
        Ok(filter) => (filter, None),
        Err(problem) => (Filter::default(), Some(problem)),
    };
    list(
        &app,
        &visit,
        &fields,
        "/scheduled",
        &figures,
        filter,
        problem,
    )
    .await
}

/// Lists jobs that were given up: dead ones, unless the filter has another state.
pub(crate) async fn dead(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let parsed = parse_typed_filter(&fields, &figures).and_then(|filter| match filter.state {
        Some(state) if !GIVEN_UP_STATES.contains(&state) => Err(format!(
            "this page lists dead, discarded, expired and cancelled jobs, not {state} ones"
        )),
        state => Ok(filter.with_state(state.or(Some(JobState::Dead)))),
    });
    let (filter, problem) = match parsed {
        Ok(filter) => (filter, None),
        Err(problem) => (
            Filter::default().with_state(Some(JobState::Dead)),
            Some(problem),
        ),
    };
    list(&app, &visit, &fields, "/dead", &figures, filter, problem).await
}

async fn list(
    app: &App,
    visit: &Visit,
    fields: &Fields,
    path: &'static str,
    figures: &Figures,
    filter: Filter,
    problem: Option<String>,
) -> Result<Response, Fault> {
    if let Some(id) = filter.id {
        return Ok(Redirect::to(&format!("/jobs/{id}")).into_response());
    }
    let typed = fields.get("filter").unwrap_or_default().to_owned();
    let sums = figures
        .snapshot
        .sums_where(|counter| filter.matches_counter(counter));
    let limit = fields
        .number("limit", (1, MAX_PAGE_JOBS))?
        .unwrap_or(DEFAULT_PAGE_JOBS);
    let at = fields.get("at").map(str::parse::<Cursor>).transpose();
    let at = at.map_err(|_| Fault::bad_request("this page of the list does not exist"))?;
    let is_continued = at.is_some();
    let search = JobSearch {
        filter: &filter,
        sums: Some(&sums),
        secrets: &app.secrets,
        at,
        is_by_due: path == "/scheduled",
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    // An invalid filter selects no job, so that no action can affect other jobs.
    let found = match problem {
        Some(_) => SearchResult::default(),
        None => search.run(&app.pool).await?,
    };
    let causes = match path == "/dead" && problem.is_none() && !is_continued {
        true => causes::cause_table(app, &filter).await?,
        false => CauseTable::default(),
    };
    let is_given_up = filter
        .state
        .is_some_and(|state| GIVEN_UP_STATES.contains(&state));
    let (title, current) = match (path, filter.state) {
        ("/dead", Some(JobState::Expired)) => ("Expired", EXPIRED_JOBS_ADDRESS),
        ("/dead", Some(JobState::Discarded)) => ("Discarded", "/dead"),
        ("/dead", Some(JobState::Cancelled)) => ("Cancelled", "/dead"),
        ("/dead", _) => ("Dead", "/dead"),
        ("/scheduled", _) => ("Scheduled", "/scheduled"),
        _ => ("Jobs", "/jobs"),
    };
    let now = figures.snapshot.server.at;
    // Invalid conditions are left out of the filter, so an action would affect more jobs than the
    // user intended.
    let all = match problem {
        Some(_) => Vec::new(),
        None => bulk_links(path, &filter, &sums, is_given_up),
    };
    let jobs = JobsPage {
        frame: Frame::new(app, visit, figures, title, current),
        problem,
        chips: state_chips(path, &filter, &sums),
        rows: found
            .jobs
            .iter()
            .map(|job| listed_job(job, now, &app.secrets))
            .collect(),
        is_given_up,
        state: filter.state.map_or("", format::state_name),
        next: next_page_address(path, &typed, limit, &found),
        beginning: address::filtered_jobs(path, &typed),
        is_cut: found.is_cut,
        is_gone: found.is_gone,
        lacks: found.lacks,
        is_continued,
        searches: filter.text.is_some(),
        took: format::precise_duration(found.took.as_secs_f64()),
        bulk: all,
        causes,
        typed,
        path,
    };
    Ok(page(StatusCode::OK, &jobs))
}

fn state_chips(path: &str, filter: &Filter, sums: &Sums) -> Vec<StateChip> {
    let states = if path == "/dead" {
        &GIVEN_UP_STATES[..]
    } else if path == "/scheduled" {
        &DUE_LATER_STATES[..]
    } else {
        &WAITING_STATES[..]
    };
    let chips = states.iter().map(|state| {
        let is_on = filter.state == Some(*state);
        // A link to the selected state deselects it.
        let other = if is_on && path != "/dead" {
            None
        } else {
            Some(*state)
        };
        let typed = filter.with_state(other).to_string();
        StateChip {
            state: format::state_name(*state),
            count: format::count(sums.in_state(*state)),
            href: address::filtered_jobs(path, &typed),
            is_on,
        }
    });
    chips.collect()
}

fn next_page_address(path: &str, typed: &str, limit: u32, found: &SearchResult) -> Option<String> {
    let (at, limit) = (found.next.as_ref()?.to_string(), limit.to_string());
    let fields = [("filter", typed), ("at", &at), ("limit", &limit)];
    Some(address::with_fields(path, &fields))
}

/// Returns the actions on all matching jobs.
fn bulk_links(path: &str, filter: &Filter, sums: &Sums, is_given_up: bool) -> Vec<BulkLink> {
    if filter.text.is_some() || filter.id.is_some() || filter.worker.is_some() {
        return Vec::new();
    }
    let waits = [
        JobState::Scheduled,
        JobState::Retrying,
        JobState::Quarantined,
    ];
    let actions: &[(&str, &str)] = match filter.state {
        Some(_) if is_given_up => &[("redrive", "Redrive"), ("delete", "Delete")],
        Some(state) if waits.contains(&state) => &[("retry", "Retry"), ("cancel", "Cancel")],
        // No filter selects "scheduled or retrying", and one without a state includes running jobs.
        None if path == "/scheduled" => &[],
        Some(JobState::Completed) => &[],
        // An empty filter would select every job.
        None if *filter == Filter::default() => &[],
        _ => &[("cancel", "Cancel")],
    };
    let number = match filter.state {
        Some(state) => sums.in_state(state),
        None => sums.pending(),
    };
    let is_counted = !filter.is_uncounted();
    let fitting = actions.iter().filter(|_| !is_counted || number > 0);
    let links = fitting.map(|(action, verb)| {
        let fields = [("do", *action), ("filter", &filter.to_string())];
        BulkLink {
            href: address::with_fields("/bulk", &fields),
            says: match is_counted {
                true => format!("{verb} all {} that match", format::count(number)),
                false => format!("{verb} all that match"),
            },
        }
    });
    links.collect()
}

fn listed_job(job: &JobRow, now: Timestamp, secrets: &Redactor) -> ListedJob {
    let since = |at: Timestamp| format::age(format::seconds_between(at, now).max(0.0));
    let until = format::seconds_between(now, job.scheduled_at);
    let when = match job.state {
        JobState::Scheduled | JobState::Retrying if until > 0.0 => {
            format!("in {}", format::age(until))
        }
        // It is due, and no leader has promoted it yet.
        JobState::Scheduled | JobState::Retrying => format!("{} late", format::age(-until)),
        _ => match job.died_at {
            Some(at) => format!("{} ago", since(at)),
            None => since(job.enqueued_at.max(job.scheduled_at.min(now))),
        },
    };
    ListedJob {
        id: job.id,
        name: format::one_line(&job.name, 80),
        tag: format::one_line(&job.tag, 40),
        arguments: argument_pieces(job, secrets),
        state: format::state_name(job.state),
        attempt: match job.max_attempts {
            Some(most) => format!("{}/{most}", job.attempt),
            None => job.attempt.to_string(),
        },
        queue: format::one_line(&job.queue, 60),
        when,
        error: format::one_line(
            &secrets.redact_error(job.last_error.as_deref().unwrap_or_default()),
            160,
        ),
    }
}

/// Returns the beginning of the arguments, or only the size of long ones.
fn argument_pieces(job: &JobRow, secrets: &Redactor) -> Vec<Piece> {
    let Some(kwargs) = &job.kwargs else {
        return vec![Piece {
            text: format::bytes(job.kwargs_bytes.into()),
            is_redacted: false,
        }];
    };
    let mut left = MAX_ARGUMENT_CHARS;
    let mut shown = Vec::new();
    for piece in secrets.format_on_one_line(kwargs) {
        if left == 0 {
            break;
        }
        let text = format::one_line(&piece.text, left);
        left = left.saturating_sub(text.chars().count());
        shown.push(Piece { text, ..piece });
    }
    shown
}
