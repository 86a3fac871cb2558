//! Security headers for browsers, and pages for refused requests.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::app::App;
use crate::fault::Fault;
use crate::notice;
use crate::pages;
use crate::visit::Visit;

/// Adds headers to each response, and a page to each fault.
pub(crate) async fn with_headers(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut visit = Visit::new(&request);
    request.extensions_mut().insert(visit.clone());
    let mut response = next.run(request).await;
    if let Some(fault) = response.extensions_mut().remove::<Fault>() {
        // The visitor may not be signed in, so the page of a fault shows nothing of the database.
        visit.who = "a fault".to_owned();
        visit.role = app.settings.role;
        let headers = std::mem::take(response.headers_mut());
        response = pages::error_page(&app, &visit, fault);
        for (name, value) in &headers {
            if name == "www-authenticate" || name == "allow" {
                response.headers_mut().insert(name, value.clone());
            }
        }
    }
    let is_page = response.status().is_success()
        && response
            .headers()
            .get("content-type")
            .is_some_and(|one| one.to_str().is_ok_and(|one| one.starts_with("text/html")));
    if visit.notice.is_some() && is_page {
        notice::remove_cookie(&mut response);
    }
    set_security_headers(response.headers_mut(), &visit.nonce);
    response
}

fn set_security_headers(headers: &mut HeaderMap, nonce: &str) {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert("content-security-policy", policy);
    }
    let all = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(), geolocation=(), microphone=()",
        ),
    ];
    for (name, value) in all {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
}

/// Forbids caching unless the response sets Cache-Control: pages show the current state.
pub(crate) async fn forbid_caching(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if !headers.contains_key("cache-control") {
        headers.insert("cache-control", HeaderValue::from_static("no-store"));
    }
    response
}
