//! Actions on all jobs of a filter: their progress, and how to stop or continue them.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};

use super::frame::Frame;
use super::{check_may_act, page};
use crate::action::{Action, Progress};
use crate::address;
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::{BulkLine, bulk_line};
use crate::format;
use crate::guard::Visit;
use crate::store::{self, Session};

/// Actions that the list shows at most.
const MAX_LISTED_ACTIONS: i64 = 200;

#[derive(Template)]
#[template(path = "bulk_action.html")]
struct ActionPage {
    frame: Frame,
    line: BulkLine,
    /// The verb that follows the number of jobs.
    verb: &'static str,
    at_most: String,
    /// The list of matching jobs.
    jobs: String,
    stopped_by: Option<String>,
    is_ours: bool,
}

impl ActionPage {
    fn has_progress(&self, progress: Progress) -> bool {
        self.line.progress == progress
    }

    fn may_stop(&self) -> bool {
        self.has_progress(Progress::Running) && self.stopped_by.is_none()
            || self.has_progress(Progress::Failed)
    }

    fn may_continue(&self) -> bool {
        self.has_progress(Progress::Stopped) || self.has_progress(Progress::Failed)
    }
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let action = find_action(&app, &id).await?;
    let figures = app.collector.figures().await?;
    let path = if action.kind.applies_to_given_up() {
        "/dead"
    } else {
        "/jobs"
    };
    let one = ActionPage {
        frame: Frame::new(&app, &visit, &figures, action.kind.title(), path),
        line: bulk_line(&action, figures.snapshot.server.at),
        verb: action.kind.past_verb(),
        at_most: format::count(action.at_most),
        jobs: address::filtered_jobs(path, &action.filter),
        stopped_by: action
            .stopped_by
            .as_ref()
            .map(|who| format::one_line(who, 60)),
        is_ours: action.is_ours,
    };
    Ok(page(StatusCode::OK, &one))
}

#[derive(Template)]
#[template(path = "bulk_actions.html")]
struct ActionsPage {
    frame: Frame,
    lines: Vec<BulkLine>,
}

pub(crate) async fn list(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let session = Session::begin_read(&app.pool).await?;
    let actions = store::read_actions(&session, MAX_LISTED_ACTIONS).await?;
    session.commit().await?;
    let now = figures.snapshot.server.at;
    let list = ActionsPage {
        frame: Frame::new(&app, &visit, &figures, "Actions by filter", ""),
        lines: actions
            .iter()
            .map(|action| bulk_line(action, now))
            .collect(),
    };
    Ok(page(StatusCode::OK, &list))
}

pub(crate) async fn stop(
    State(app): State<Arc<App>>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let action = find_action(&app, &id).await?;
    let stopped = store::stop_action(&app.pool, action.id, &visit.who).await;
    let jobs = |jobs: i64| usize::try_from(jobs).unwrap_or(0);
    let done = stopped.as_ref().map_err(Clone::clone);
    let done = done.map(|moved| moved.as_ref().map_or(0, |moved| jobs(moved.jobs)));
    audit::log_outcome(&visit, "stop", &action.log_description(), done)?;
    if let Some(moved) = stopped?.filter(|moved| moved.progress == Progress::Stopped) {
        audit::log_bulk_end(&action, &moved, None);
    }
    app.collector.invalidate().await;
    Ok(Redirect::to(&address::bulk_action(action.id)).into_response())
}

pub(crate) async fn continue_action(
    State(app): State<Arc<App>>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let action = find_action(&app, &id).await?;
    let continued = store::continue_action(&app.pool, action.id, app.driver.console_id()).await;
    audit::log_outcome(
        &visit,
        "continue",
        &action.log_description(),
        continued.map(|_| 0),
    )?;
    app.driver.start();
    app.driver.wake();
    app.driver.wait_for_end(action.id).await;
    app.collector.invalidate().await;
    Ok(Redirect::to(&address::bulk_action(action.id)).into_response())
}

async fn find_action(app: &App, id: &str) -> Result<Action, Fault> {
    let action = match id.parse() {
        Ok(id) => store::read_action(&app.pool, id).await?,
        Err(_) => None,
    };
    action.ok_or_else(|| {
        let what = "this action does not exist";
        let then = "The newest 200 are kept: /bulk-actions lists them.";
        Fault::new(StatusCode::NOT_FOUND, what, then)
    })
}
