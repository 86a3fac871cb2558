//! The checks before each page: who may come in, and from which site requests may come.

mod origin;
mod proxy;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use tokio::time::timeout;

use crate::address;
use crate::app::App;
use crate::fault::Fault;
use crate::visit::client_address;
use crate::{Access, Role};

/// Timeout of a page. Statements end earlier, but a half-open connection never answers.
const PAGE_TIMEOUT: Duration = Duration::from_secs(45);
pub(crate) use crate::token::{Login, TokenAuth};
pub(crate) use crate::visit::Visit;
pub use origin::is_loopback_host;
pub(crate) use origin::is_secure;

/// Returns whether a page needs no login.
fn needs_no_login(path: &str) -> bool {
    path == "/login" || path.starts_with("/assets/")
}

/// Passes on requests that are allowed, and rejects the others.
pub(crate) async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let token_auth = &app.token_auth;
    if app.settings.access == Access::Loopback && !origin::is_loopback_host(headers) {
        return Fault::new(
            StatusCode::FORBIDDEN,
            "this console is reachable by a loopback address only",
            "Open it as http://127.0.0.1 or http://localhost, or configure a token.",
        )
        .into_response();
    }
    let by_header = token_auth.accepts_bearer(headers);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_ours =
        origin::is_same_origin(headers) || (by_header && origin::has_no_browser_headers(headers));
    if !reads && !is_ours {
        return Fault::new(
            StatusCode::FORBIDDEN,
            "the request came from another site or without an Origin",
            "Use the pages of the console; programs send its Origin or a bearer token.",
        )
        .into_response();
    }
    let login = token_auth.login(headers);
    let who = match &app.settings.access {
        Access::Loopback => Some("loopback".to_owned()),
        Access::Token(_) if by_header => Some("token".to_owned()),
        Access::Token(_) => login.is_some().then(|| "login".to_owned()),
        Access::Proxy(proxy) => {
            match proxy::authenticated_user(proxy, client_address(&request), headers) {
                Ok(name) => Some(name),
                Err(fault) => return fault.into_response(),
            }
        }
    };
    if who.is_none() && !needs_no_login(request.uri().path()) {
        return require_login(&request);
    }
    if let (Some(who), Some(visit)) = (who, request.extensions_mut().get_mut::<Visit>()) {
        visit.role = user_role(&app, &who);
        visit.who = who;
        visit.login = login;
    }
    let answer = match reads {
        true => timeout(PAGE_TIMEOUT, next.run(request)).await,
        // An action continues and is logged even if its client has disconnected.
        false => {
            let acts = tokio::spawn(next.run(request));
            let acted = timeout(PAGE_TIMEOUT, acts).await;
            acted.map(|acted| acted.unwrap_or_else(|error| failed_task_response(&error)))
        }
    };
    answer.unwrap_or_else(|_| {
        Fault::new(
            StatusCode::GATEWAY_TIMEOUT,
            "the database does not answer",
            "The action may have taken effect: check before you try again.",
        )
        .into_response()
    })
}

fn failed_task_response(error: &tokio::task::JoinError) -> Response {
    tracing::error!(%error, "an action ended");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// Returns the role of a user.
fn user_role(app: &App, who: &str) -> Role {
    let Access::Proxy(proxy) = &app.settings.access else {
        return app.settings.role;
    };
    match proxy.operators.iter().any(|one| one == who) {
        true => Role::Operator,
        false => app.settings.role,
    }
}

/// Redirects a browser to the login form, and answers a program with 401.
fn require_login(request: &Request) -> Response {
    let wants_page = request.headers().get("accept").is_some_and(|accept| {
        accept
            .to_str()
            .is_ok_and(|accept| accept.contains("text/html"))
    });
    if wants_page && *request.method() == Method::GET {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        return Redirect::to(&address::with_fields("/login", &[("back", path)])).into_response();
    }
    let mut response = Fault::new(
        StatusCode::UNAUTHORIZED,
        "you are not signed in, or your session has ended",
        "Sign in and try again. A program sends the token as Authorization: Bearer.",
    )
    .into_response();
    let bearer = axum::http::HeaderValue::from_static("Bearer");
    response.headers_mut().insert("www-authenticate", bearer);
    response
}
