//! For those who start and stop programs: seen from outside, and silent about everything else.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;

/// The program answers.
pub(crate) async fn live() -> &'static str {
    "live\n"
}

/// The database has answered, too, within the last half minute; asked at most every two seconds.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.collector.seen().await {
        Ok(_) => (StatusCode::OK, "ready\n"),
        Err(error) => {
            tracing::warn!(%error, "the console is not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    }
}
