//! Captures: whether each runs, how far it is, how much log the server retains for it, and its
//! gaps.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use posthaste_capture::{Gap, Overview};

use super::frame::Frame;
use super::{check_may_act, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::form::{Fields, Form};
use crate::format;
use crate::guard::Visit;
use crate::notice;
use crate::store;

/// A capture, as a row of the table.
struct CaptureRow {
    /// Its exact name, for forms.
    key: String,
    name: String,
    slot: String,
    state: &'static str,
    class: &'static str,
    reason: String,
    done: String,
    events: String,
    lag: String,
    unconfirmed: String,
    retained: String,
    gaps: i64,
    is_paused: bool,
    /// The progress of copies, or why one cannot continue.
    copy: String,
}

/// A gap, as a row of the table.
struct GapRow {
    id: i64,
    capture: String,
    begins: String,
    ends: String,
    seen: String,
    reason: String,
    tables: String,
    accepted: String,
    is_accepted: bool,
    /// Whether the gap is open: the capture has not begun again.
    is_open: bool,
}

#[derive(Template)]
#[template(path = "captures.html")]
struct CapturesPage {
    frame: Frame,
    rows: Vec<CaptureRow>,
    gaps: Vec<GapRow>,
    took: String,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let started = Instant::now();
    let gaps = store::read_gaps(&app.pool).await?;
    let took = format::precise_duration(started.elapsed().as_secs_f64());
    let now = figures.snapshot.server.at;
    let captures = CapturesPage {
        frame: Frame::new(&app, &visit, &figures, "Captures", "/captures"),
        rows: figures.snapshot.captures.iter().map(capture_row).collect(),
        gaps: gaps.iter().map(|one| gap_row(one, now)).collect(),
        took,
    };
    Ok(page(StatusCode::OK, &captures))
}

fn capture_row(one: &Overview) -> CaptureRow {
    let class = match one.state() {
        "running" | "copying" | "direct" => "up",
        "waiting" | "draining" => "retrying",
        "spilling" | "full" => "failing",
        "paused" => "paused",
        "stopped" => "failing",
        _ => "idle",
    };
    let lost = (one.is_missing || one.wal_status == "lost").then_some("its slot is lost");
    let problem = one.path_problem.as_deref();
    let reason = one.stopped.as_deref().or(lost).or(problem);
    let reason = reason.unwrap_or_default();
    let bytes = |number: Option<i64>| number.map_or_else(|| "–".to_owned(), format::bytes);
    CaptureRow {
        key: one.name.clone(),
        name: format::one_line(&one.name, 60),
        slot: format::one_line(&one.slot, 80),
        state: one.state(),
        class,
        reason: format::one_line(reason, 400),
        done: one.done.clone().unwrap_or_else(|| "–".to_owned()),
        events: format::count(one.events),
        lag: one.lag_seconds.map_or_else(|| "–".to_owned(), format::age),
        unconfirmed: bytes(one.unconfirmed_bytes),
        retained: bytes(one.retained_bytes),
        gaps: one.gaps,
        is_paused: one.paused_at.is_some(),
        copy: copy_text(one),
    }
}

fn copy_text(one: &Overview) -> String {
    match (&one.copy_problem, one.copied_rows) {
        (Some(problem), _) => format!("a copy failed: {}", format::one_line(problem, 300)),
        (None, Some(rows)) => {
            let about = format::pluralize(one.copy_rows.unwrap_or(0), "row", "rows");
            format!("{} of about {about} copied", format::count(rows))
        }
        (None, None) => String::new(),
    }
}

fn gap_row(gap: &Gap, now: Timestamp) -> GapRow {
    let accepted = gap
        .accepted_by
        .as_deref()
        .map(|who| format::one_line(who, 60));
    GapRow {
        id: gap.id,
        capture: format::one_line(&gap.capture, 60),
        begins: gap.begins.clone(),
        ends: gap.ends.clone().unwrap_or_else(|| "now".to_owned()),
        seen: format::time(gap.seen_at, now),
        reason: format::one_line(&gap.reason, 300),
        tables: format::one_line(&gap.tables.join(", "), 300),
        accepted: accepted.unwrap_or_default(),
        is_accepted: gap.accepted_at.is_some(),
        is_open: gap.ends.is_none(),
    }
}

pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    set_paused(&app, &visit, &fields, true).await
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    set_paused(&app, &visit, &fields, false).await
}

async fn set_paused(
    app: &App,
    visit: &Visit,
    fields: &Fields,
    is_paused: bool,
) -> Result<Response, Fault> {
    check_may_act(app, visit).await?;
    let name = &fields.name("capture")?;
    let (action, did) = match is_paused {
        true => ("pause capture", "rest"),
        false => ("resume capture", "wake"),
    };
    let changed = store::pause_capture(&app.pool, name, is_paused).await;
    let changed = audit::log_outcome(visit, action, name, changed)?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        did,
        changed,
    ))
}

pub(crate) async fn accept_gap(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let id = fields.get("gap").and_then(|id| id.parse().ok());
    let id: i64 = id.ok_or_else(|| {
        let then = "Open the page of captures again.";
        Fault::new(StatusCode::BAD_REQUEST, "a gap has a number", then)
    })?;
    let accepted = store::accept_gap(&app.pool, id).await;
    let accepted = audit::log_outcome(&visit, "accept gap", &id.to_string(), accepted)?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        "accept",
        accepted,
    ))
}
