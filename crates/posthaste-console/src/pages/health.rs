//! Health checks for supervisors of the program. They need no login and reveal nothing else.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use crate::app::App;

/// Answers while the program runs.
pub(crate) async fn live() -> &'static str {
    "live\n"
}

/// Succeeds if the database answered within the last half minute; it is read at most every two
/// seconds.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match app.collector.figures().await {
        Ok(_) => (StatusCode::OK, "ready\n"),
        Err(error) => {
            tracing::warn!(%error, "the console is not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    }
}
