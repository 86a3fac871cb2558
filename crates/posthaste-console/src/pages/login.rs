//! The login form for the token.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};

use super::{has_login, page};
use crate::app::App;
use crate::fault::Fault;
use crate::form::{Form, Query};
use crate::guard::{TokenAuth, Visit, is_secure};

/// Delay of the response to a wrong token.
const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(500);

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    nonce: String,
    assets: &'static str,
    back: String,
    is_wrong: bool,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Response {
    match has_login(&app) {
        true => login_form(&visit, fields.return_address(), false),
        false => Redirect::to("/").into_response(),
    }
}

fn login_form(visit: &Visit, back: &str, is_wrong: bool) -> Response {
    let login = LoginPage {
        nonce: visit.nonce.clone(),
        assets: super::assets::version(),
        back: back.to_owned(),
        is_wrong,
    };
    let status = if is_wrong {
        StatusCode::UNAUTHORIZED
    } else {
        StatusCode::OK
    };
    page(status, &login)
}

pub(crate) async fn log_in(
    State(app): State<Arc<App>>,
    visit: Visit,
    headers: HeaderMap,
    Form(fields): Form,
) -> Response {
    let is_known = app
        .token_auth
        .is_token(fields.get("token").unwrap_or_default());
    let cookie = app
        .token_auth
        .cookie(app.settings.over_tls || is_secure(&headers))
        .filter(|_| is_known);
    let cookie = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok());
    let Some(cookie) = cookie else {
        let peer = visit.peer.as_deref().unwrap_or("unknown");
        tracing::warn!(peer, "a login to the console had a wrong token");
        tokio::time::sleep(WRONG_TOKEN_DELAY).await;
        return login_form(&visit, fields.return_address(), true);
    };
    let mut response = Redirect::to(fields.return_address()).into_response();
    response.headers_mut().insert("set-cookie", cookie);
    response
}

pub(crate) async fn log_out(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    if let Some(login) = visit.login {
        app.token_auth.end_login(login);
    }
    let mut response = Redirect::to("/login").into_response();
    if let Ok(cookie) = HeaderValue::from_str(&TokenAuth::removal_cookie()) {
        response.headers_mut().insert("set-cookie", cookie);
    }
    Ok(response)
}
