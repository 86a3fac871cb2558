//! The list of queues, and actions on them.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste::Rate;

use super::frame::Frame;
use super::{check_may_act, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::form::{Fields, Form};
use crate::guard::Visit;
use crate::notice;
use crate::store::{Session, StoreError};

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    figures: Arc<Figures>,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let queues = QueuesPage {
        frame: Frame::new(&app, &visit, &figures, "Queues", "/queues"),
        figures,
    };
    Ok(page(StatusCode::OK, &queues))
}

pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &find_queue(&app, &fields).await?;
    audit::log_outcome(&visit, "pause", queue, set_paused(&app, queue, true).await)?;
    Ok(redirect_after_change(&app, &fields, "pause").await)
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &find_queue(&app, &fields).await?;
    audit::log_outcome(
        &visit,
        "resume",
        queue,
        set_paused(&app, queue, false).await,
    )?;
    Ok(redirect_after_change(&app, &fields, "resume").await)
}

/// Returns the queue that a form names, which must exist: a setting would create a queue of a
/// misspelled name.
pub(super) async fn find_queue(app: &App, fields: &Fields) -> Result<String, Fault> {
    let queue = fields.name("queue")?;
    if !queue_exists(app, &queue).await? {
        // The first job of the queue may be newer than the figures.
        app.collector.invalidate().await;
        if !queue_exists(app, &queue).await? {
            return Err(super::queue::unknown_queue(&queue));
        }
    }
    Ok(queue)
}

async fn queue_exists(app: &App, queue: &str) -> Result<bool, StoreError> {
    let figures = app.collector.figures().await?;
    Ok(figures.queues.iter().any(|line| line.name == queue))
}

pub(super) async fn set_paused(
    app: &App,
    queue: &str,
    is_paused: bool,
) -> Result<usize, StoreError> {
    let session = Session::begin_action(&app.pool).await?;
    match is_paused {
        true => session.jobs()?.pause(queue).await?,
        false => session.jobs()?.resume(queue).await?,
    };
    session.commit().await.map(|()| 0)
}

pub(crate) async fn limit(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &find_queue(&app, &fields).await?;
    let rate = read_rate_limit(&fields)?;
    let (rate, in_words) = rate.unzip();
    let (action, on) = match in_words {
        Some(in_words) => ("limit", format!("{queue}: {in_words}")),
        None => ("unlimit", queue.to_owned()),
    };
    audit::log_outcome(&visit, action, &on, set_rate_limit(&app, queue, rate).await)?;
    Ok(redirect_after_change(&app, &fields, action).await)
}

/// Returns the rate limit of a form, also in words; `None` without a number of jobs.
fn read_rate_limit(fields: &Fields) -> Result<Option<(Rate, String)>, Fault> {
    let most = i32::MAX.unsigned_abs();
    let Some(jobs) = fields.number_within("rate", (1, most))? else {
        return Ok(None);
    };
    let per = fields.number_within("per", (1, 360 * 86_400))?.unwrap_or(1);
    let rate = Rate::new(jobs, Duration::from_secs(per.into()));
    let in_words = format!("{jobs} in {per} s");
    Ok(Some(match fields.number_within("burst", (1, most))? {
        Some(burst) => (rate.burst(burst), format!("{in_words}, burst {burst}")),
        None => (rate, in_words),
    }))
}

async fn set_rate_limit(app: &App, queue: &str, rate: Option<Rate>) -> Result<usize, StoreError> {
    let session = Session::begin_action(&app.pool).await?;
    session.jobs()?.limit(queue, rate).await?;
    session.commit().await.map(|()| 0)
}

/// The longest retention, in hours.
const MAX_RETENTION_HOURS: u32 = 3_660 * 24;

pub(crate) async fn keep(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &find_queue(&app, &fields).await?;
    let number = fields.number_within("keep", (1, MAX_RETENTION_HOURS))?;
    let unit = fields
        .number_within("unit", (3_600, 86_400))?
        .unwrap_or(3_600);
    let seconds = number.map(|number| u64::from(number) * u64::from(unit));
    let seconds = seconds.map(|seconds| seconds.min(u64::from(MAX_RETENTION_HOURS) * 3_600));
    let (action, on) = match seconds {
        Some(seconds) => ("keep", format!("{queue}: {seconds} s")),
        None => ("forget", queue.to_owned()),
    };
    let keep = seconds.map(Duration::from_secs);
    audit::log_outcome(&visit, action, &on, set_retention(&app, queue, keep).await)?;
    Ok(redirect_after_change(&app, &fields, action).await)
}

async fn set_retention(
    app: &App,
    queue: &str,
    keep: Option<Duration>,
) -> Result<usize, StoreError> {
    let session = Session::begin_action(&app.pool).await?;
    session.jobs()?.keep(queue, keep).await?;
    session.commit().await.map(|()| 0)
}

async fn redirect_after_change(app: &App, fields: &Fields, did: &str) -> Response {
    app.collector.invalidate().await;
    notice::redirect_with_notice(fields.return_address(), did, 0)
}
