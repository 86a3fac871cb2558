//! Periodic jobs: their next times, and actions to run them now or switch them off and on.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;

use super::frame::Frame;
use super::{check_may_act, page};
use crate::address;
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::filter::Filter;
use crate::form::{Fields, Form};
use crate::format;
use crate::guard::Visit;
use crate::notice;
use crate::redact::{Piece, Redactor};
use crate::store;

/// The most characters of arguments in a row.
const MAX_ARGUMENT_CHARS: usize = 120;

/// A periodic job, as a row of the table.
struct PeriodicRow {
    /// Its exact name, for forms.
    key: String,
    name: String,
    job: String,
    /// The address of the list of its jobs.
    link: String,
    schedule: String,
    time_zone: String,
    next: String,
    next_at: String,
    enqueued_at: String,
    queue: String,
    tag: String,
    arguments: Vec<Piece>,
    missed: &'static str,
    state: Cow<'static, str>,
    class: &'static str,
    is_off: bool,
}

#[derive(Template)]
#[template(path = "periodic.html")]
struct PeriodicPage {
    frame: Frame,
    rows: Vec<PeriodicRow>,
    took: String,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let started = Instant::now();
    let all = store::read_periodic(&app.pool).await?;
    let took = format::precise_duration(started.elapsed().as_secs_f64());
    let now = figures.snapshot.server.at;
    let periodic = PeriodicPage {
        frame: Frame::new(&app, &visit, &figures, "Periodic", "/periodic"),
        rows: all
            .iter()
            .map(|one| periodic_row(one, now, &app.secrets))
            .collect(),
        took,
    };
    Ok(page(StatusCode::OK, &periodic))
}

fn periodic_row(one: &store::Periodic, now: Timestamp, secrets: &Redactor) -> PeriodicRow {
    let until = one.next_at.map(|at| format::seconds_between(now, at));
    let (state, class) = match (one.is_off, &one.error, until) {
        (true, ..) => ("off".into(), "paused"),
        (false, Some(error), _) => (
            format!("invalid: {}", format::one_line(error, 200)).into(),
            "failing",
        ),
        (false, None, Some(until)) if until < -60.0 => ("late".into(), "failing"),
        (false, None, Some(_)) => ("on".into(), "up"),
        (false, None, None) => ("not seen yet".into(), "idle"),
    };
    let of_name = Filter {
        name: Some(one.job.clone()),
        ..Filter::default()
    };
    PeriodicRow {
        key: one.name.clone(),
        name: format::one_line(&one.name, 120),
        job: format::one_line(&one.job, 80),
        link: address::filtered_jobs("/jobs", &of_name),
        schedule: format::one_line(&one.schedule, 60),
        time_zone: format::one_line(&one.time_zone, 40),
        next: match until {
            Some(until) if until > 0.0 => format!("in {}", format::age(until)),
            Some(until) => format!("{} ago", format::age(-until)),
            None => "–".to_owned(),
        },
        next_at: one
            .next_at
            .map(|at| format::time(at, now))
            .unwrap_or_default(),
        enqueued_at: one
            .enqueued_at
            .map_or_else(|| "–".to_owned(), |at| format::time(at, now)),
        queue: match &one.queue {
            Some(queue) => format::one_line(queue, 60),
            None => "by posthaste.route".to_owned(),
        },
        tag: format::one_line(&one.tag, 40),
        arguments: argument_pieces(one.kwargs.as_deref(), secrets),
        missed: match one.missed.as_str() {
            "all" => "run all",
            "none" => "run none",
            _ => "run the last",
        },
        state,
        class,
        is_off: one.is_off,
    }
}

fn argument_pieces(kwargs: Option<&str>, secrets: &Redactor) -> Vec<Piece> {
    let Some(kwargs) = kwargs else {
        return vec![Piece {
            text: "more than 4 KiB".to_owned(),
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

pub(crate) async fn run_now(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let name = &fields.name("name")?;
    let jobs = store::run_periodic(&app.pool, name).await;
    let jobs = audit::log_outcome(&visit, "run periodic", name, jobs)?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        "run",
        jobs,
    ))
}

pub(crate) async fn switch_off(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    switch_periodic(&app, &visit, &fields, false).await
}

pub(crate) async fn switch_on(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    switch_periodic(&app, &visit, &fields, true).await
}

async fn switch_periodic(
    app: &App,
    visit: &Visit,
    fields: &Fields,
    is_on: bool,
) -> Result<Response, Fault> {
    check_may_act(app, visit).await?;
    let name = &fields.name("name")?;
    let (action, did) = match is_on {
        true => ("switch periodic on", "on"),
        false => ("switch periodic off", "off"),
    };
    let changed = store::switch_periodic(&app.pool, name, is_on).await;
    let changed = audit::log_outcome(visit, action, name, changed)?;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        did,
        changed,
    ))
}
