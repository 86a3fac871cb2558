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
use crate::format;
use crate::guard::Visit;
use crate::notice;
use crate::store::{self, Session, StoreError};

pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let ids = fields.selected_jobs()?;
    let jobs = audit::log_outcome(
        &visit,
        "retry",
        &job_ids_text(&ids),
        retry_jobs(&app, &ids).await,
    )?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        "retry",
        jobs,
    ))
}

async fn retry_jobs(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let session = Session::begin_action(&app.pool).await?;
    let met = session.jobs()?.retry(ids).await?;
    session.commit().await?;
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
    let ids = fields.selected_jobs()?;
    let jobs = audit::log_outcome(
        &visit,
        "cancel",
        &job_ids_text(&ids),
        cancel_jobs(&app, &ids).await,
    )?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        "cancel",
        jobs,
    ))
}

async fn cancel_jobs_once(app: &App, ids: &[JobId]) -> Result<Vec<(JobId, JobState)>, StoreError> {
    let session = Session::begin_action(&app.pool).await?;
    let met = session.jobs()?.cancel(ids).await?;
    session.commit().await.map(|()| met)
}

/// Cancels jobs in several calls, because one call cancels in at most two hundred lanes.
async fn cancel_jobs(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let before = store::already_cancelled(&app.pool, ids).await?;
    let mut left: Vec<JobId> = ids.to_vec();
    left.retain(|id| !before.contains(id));
    let mut ended = 0;
    while !left.is_empty() {
        let met = match cancel_jobs_once(app, &left).await {
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
    let ids = fields.selected_jobs()?;
    let jobs = audit::log_outcome(
        &visit,
        "redrive",
        &job_ids_text(&ids),
        redrive_jobs(&app, &ids).await,
    )?;
    app.collector.invalidate().await;
    Ok(notice::redirect_with_notice(
        fields.return_address(),
        "redrive",
        jobs,
    ))
}

async fn redrive_jobs(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let session = Session::begin_action(&app.pool).await?;
    let sent = session.jobs()?.redrive(ids).await?;
    session.commit().await?;
    Ok(sent.len())
}

#[derive(Template)]
#[template(path = "confirm_deletion.html")]
struct DeletionQuestion {
    frame: Frame,
    ids: Vec<i64>,
    count: String,
    back: String,
}

/// Deletes given-up jobs permanently, after a confirmation.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let ids = fields.selected_jobs()?;
    if fields.get("confirmed") != Some("yes") {
        let figures = app.collector.figures().await?;
        let number = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let question = DeletionQuestion {
            frame: Frame::new(&app, &visit, &figures, "Delete", "/dead"),
            ids: ids.iter().map(|id| id.0).collect(),
            count: format::pluralize(number, "job", "jobs"),
            back: fields.return_address().to_owned(),
        };
        return Ok(page(StatusCode::OK, &question));
    }
    let deleted = store::delete_jobs(&app.pool, &ids).await;
    let jobs = audit::log_outcome(&visit, "delete", &job_ids_text(&ids), deleted)?;
    app.collector.invalidate().await;
    // The page of the deleted job no longer exists.
    let back = match fields.return_address().starts_with("/jobs/") {
        true => "/dead",
        false => fields.return_address(),
    };
    Ok(notice::redirect_with_notice(back, "delete", jobs))
}

/// Returns the ids of jobs for a line of the log.
fn job_ids_text(ids: &[JobId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
    format!("jobs {}", ids.join(", "))
}
