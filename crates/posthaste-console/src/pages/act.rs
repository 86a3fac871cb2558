//! Actions on selected jobs.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste::{JobId, State as JobState};

use super::frame::Frame;
use super::{check_may_act, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::form::Form;
use crate::guard::Visit;
use crate::notice;
use crate::store::{self, Session, StoreError};
use crate::format;

pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let ids = fields.jobs()?;
    let jobs = audit::log(&visit, "retry", &named(&ids), retried(&app, &ids).await)?;
    app.collector.refresh().await;
    Ok(notice::done(fields.back(), "retry", jobs))
}

async fn retried(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let session = Session::act(&app.pool).await?;
    let met = session.jobs()?.retry(ids).await?;
    session.end().await?;
    let runs = [
        JobState::Available,
        JobState::Blocked,
        JobState::Quarantined,
    ];
    Ok(met.iter().filter(|(_, state)| runs.contains(state)).count())
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let ids = fields.jobs()?;
    let jobs = audit::log(&visit, "cancel", &named(&ids), cancelled(&app, &ids).await)?;
    app.collector.refresh().await;
    Ok(notice::done(fields.back(), "cancel", jobs))
}

async fn cancelled_once(app: &App, ids: &[JobId]) -> Result<Vec<(JobId, JobState)>, StoreError> {
    let session = Session::act(&app.pool).await?;
    let met = session.jobs()?.cancel(ids).await?;
    session.end().await.map(|()| met)
}

/// Cancels jobs in several calls, because one call cancels in at most two hundred lanes.
async fn cancelled(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let before = store::cancelled_before(&app.pool, ids).await?;
    let mut left: Vec<JobId> = ids.to_vec();
    left.retain(|id| !before.contains(id));
    let mut ended = 0;
    while !left.is_empty() {
        let met = match cancelled_once(app, &left).await {
            // Jobs that earlier calls cancelled stay cancelled and are reported.
            Err(error) if ended > 0 => {
                tracing::warn!(%error, "not all selected jobs could be cancelled");
                break;
            }
            met => met?,
        };
        let ends = [JobState::Cancelled, JobState::Running];
        ended += met.iter().filter(|(_, state)| ends.contains(state)).count();
        let again = met
            .iter()
            .filter(|(_, state)| *state == JobState::Available);
        let again: Vec<JobId> = again.map(|(id, _)| *id).collect();
        if again.len() >= left.len() {
            break;
        }
        left = again;
    }
    Ok(ended)
}

pub(crate) async fn redrive(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let ids = fields.jobs()?;
    let jobs = audit::log(&visit, "redrive", &named(&ids), redriven(&app, &ids).await)?;
    app.collector.refresh().await;
    Ok(notice::done(fields.back(), "redrive", jobs))
}

async fn redriven(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let session = Session::act(&app.pool).await?;
    let sent = session.jobs()?.redrive(ids).await?;
    session.end().await?;
    Ok(sent.len())
}

#[derive(Template)]
#[template(path = "sure.html")]
struct Sure {
    frame: Frame,
    ids: Vec<i64>,
    count: String,
    back: String,
}

/// Deletes kept jobs permanently, after a confirmation.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let ids = fields.jobs()?;
    if fields.get("sure") != Some("yes") {
        let figures = app.collector.seen().await?;
        let number = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let sure = Sure {
            frame: Frame::new(&app, &visit, &figures, "Delete", "/dead"),
            ids: ids.iter().map(|id| id.0).collect(),
            count: format::pluralize(number, "job", "jobs"),
            back: fields.back().to_owned(),
        };
        return Ok(page(StatusCode::OK, &sure));
    }
    let deleted = store::delete_jobs(&app.pool, &ids).await;
    let jobs = audit::log(&visit, "delete", &named(&ids), deleted)?;
    app.collector.refresh().await;
    // The page of the deleted job no longer exists.
    let back = match fields.back().starts_with("/jobs/") {
        true => "/dead",
        false => fields.back(),
    };
    Ok(notice::done(back, "delete", jobs))
}

/// Returns the ids of jobs for a line of the log.
fn named(ids: &[JobId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
    format!("jobs {}", ids.join(", "))
}
