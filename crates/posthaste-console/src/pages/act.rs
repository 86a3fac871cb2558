//! What is done to the jobs that were selected.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use posthaste::{JobId, State as JobState};

use super::{check_may_act, notice};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::form::Form;
use crate::guard::Visit;
use crate::store::{Session, StoreError};

pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app).await?;
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
    check_may_act(&app).await?;
    let ids = fields.jobs()?;
    let jobs = audit::log(&visit, "cancel", &named(&ids), cancelled(&app, &ids).await)?;
    app.collector.refresh().await;
    Ok(notice::done(fields.back(), "cancel", jobs))
}

/// One call cancels in two hundred lanes at most, and those of the others once more.
async fn cancelled(app: &App, ids: &[JobId]) -> Result<usize, StoreError> {
    let (mut left, mut ended) = (ids.to_vec(), 0);
    while !left.is_empty() {
        let session = Session::act(&app.pool).await?;
        let met = session.jobs()?.cancel(&left).await?;
        session.end().await?;
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
    check_may_act(&app).await?;
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

/// The numbers of jobs, as a line of the log has them.
fn named(ids: &[JobId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
    format!("jobs {}", ids.join(", "))
}
