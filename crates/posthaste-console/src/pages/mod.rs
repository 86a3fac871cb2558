//! The pages and their templates.

pub(crate) mod act;
pub(crate) mod assets;
pub(crate) mod bulk_preview;
pub(crate) mod bulk_progress;
pub(crate) mod captures;
pub(crate) mod destinations;
pub(crate) mod drain;
mod frame;
pub(crate) mod health;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod live;
pub(crate) mod login;
pub(crate) mod overview;
pub(crate) mod periodic;
pub(crate) mod queue;
pub(crate) mod queues;
pub(crate) mod reindex;
pub(crate) mod settings;
pub(crate) mod sync;
pub(crate) mod transactions;
pub(crate) mod two_phase;
pub(crate) mod workers;

use askama::Template;
use axum::http::{Method, StatusCode};
use axum::response::{Html, IntoResponse, Response};

use crate::app::App;
use crate::fault::Fault;
use crate::guard::Visit;
use crate::{Access, Role};
use frame::Frame;

/// Renders a template as a page.
fn page<T: Template>(status: StatusCode, template: &T) -> Response {
    match template.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => {
            let error = format!("{}: {error}", std::any::type_name::<T>());
            tracing::error!(error, "the template of a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage {
    frame: Frame,
    fault: Fault,
}

/// Returns the page of a fault.
pub(crate) fn error_page(app: &App, visit: &Visit, fault: Fault) -> Response {
    let mut frame = Frame::without_figures(app, visit, "Something went wrong", "");
    if fault.status == StatusCode::UNAUTHORIZED {
        frame.role = "Not signed in";
        frame.may_leave = false;
    }
    // Pages that read are reloaded, because the database may answer again; a form is not submitted
    // again.
    frame.retries = fault.status == StatusCode::SERVICE_UNAVAILABLE && visit.is_read;
    page(
        fault.status,
        &FaultPage {
            frame,
            fault: fault.clone(),
        },
    )
}

/// Returns the fault of an unknown page.
pub(crate) async fn not_found() -> Fault {
    Fault::new(
        StatusCode::NOT_FOUND,
        "this page does not exist",
        "Use the menu to find a page.",
    )
}

/// Returns the fault of a method that the path does not support.
pub(crate) async fn method_not_allowed(method: Method) -> Fault {
    let what = format!("{method} is not allowed here");
    Fault::new(
        StatusCode::METHOD_NOT_ALLOWED,
        what,
        "Use the menu to find a page.",
    )
}

/// Returns a fault if the user may not act, or if the server is a replica.
async fn check_may_act(app: &App, visit: &Visit) -> Result<(), Fault> {
    if visit.role != Role::Operator {
        let what = "this console is read-only";
        let then = "Start it with --operate to make changes, or use the command line.";
        return Err(Fault::new(StatusCode::FORBIDDEN, what, then));
    }
    let seen = app.collector.figures().await?;
    match seen.snapshot.server.is_replica {
        true => Err(crate::store::StoreError::ReadOnly.into()),
        false => Ok(()),
    }
}

/// Returns whether the console has logins, so that a user can log out.
fn has_login(app: &App) -> bool {
    matches!(app.settings.access, Access::Token(_))
}
