//! Drains a queue for a deploy: pauses it, waits for running jobs, and resumes it.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::Frame;
use super::{check_may_act, page, queues};
use crate::address;
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::Cell;
use crate::form::{Form, Query};
use crate::format;
use crate::guard::Visit;
use crate::notice;

#[derive(Template)]
#[template(path = "drain.html")]
struct DrainPage {
    frame: Frame,
    queue: String,
    shown: String,
    /// The number of its running jobs; an open page updates it.
    running: Cell,
    is_empty: bool,
    waiting: String,
    /// When it was paused; `None` if it is not.
    paused: Option<String>,
    jobs: String,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let queue = &fields.name("queue")?;
    let figures = app.collector.figures().await?;
    let snapshot = &figures.snapshot;
    let sums = snapshot
        .sums_by_queue()
        .get(queue.as_str())
        .copied()
        .unwrap_or_default();
    let now = snapshot.server.at;
    let running = crate::filter::Filter {
        queue: Some(queue.to_owned()),
        state: Some(posthaste::State::Running),
        ..Default::default()
    };
    let drain = DrainPage {
        frame: Frame::new(&app, &visit, &figures, "Drain", "/queues"),
        shown: format::one_line(queue, 80),
        running: Cell::number(format!("queue.{queue}.running"), sums.running),
        is_empty: sums.running == 0,
        waiting: format::pluralize(sums.available, "job waits", "jobs wait"),
        paused: snapshot.paused_at(queue).map(|at| format::time(at, now)),
        jobs: address::filtered_jobs("/jobs", &running),
        queue: queue.to_owned(),
    };
    Ok(page(StatusCode::OK, &drain))
}

/// Pauses the queue, and redirects to the page with its running jobs.
pub(crate) async fn begin(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &queues::find_queue(&app, &fields).await?;
    audit::log_outcome(
        &visit,
        "drain",
        queue,
        queues::set_paused(&app, queue, true).await,
    )?;
    app.collector.invalidate().await;
    let to = address::with_fields("/queues/drain", &[("queue", queue)]);
    Ok(notice::redirect_with_notice(&to, "pause", 0))
}
