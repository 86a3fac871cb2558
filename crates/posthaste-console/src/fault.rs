//! Pages about errors.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::store::StoreError;

/// The reason why there is no page, and the remedy. The layer around all pages turns it into a
/// page.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) what: String,
    pub(crate) then: String,
}

impl Fault {
    pub(crate) fn new(
        status: StatusCode,
        what: impl Into<String>,
        then: impl Into<String>,
    ) -> Self {
        Self {
            status,
            what: what.into(),
            then: then.into(),
        }
    }

    /// Creates the fault of an invalid request.
    pub(crate) fn bad_request(what: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            what,
            "Go back and correct your input.",
        )
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let (status, then) = match &error {
            StoreError::Unreachable(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Jobs are safe. Check that Postgres is running and reachable from this machine.",
            ),
            StoreError::Late(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Nothing was changed. Postgres is busy, or a lock blocks the query: try again, or \
                 select less.",
            ),
            StoreError::ReadOnly => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Use the console of the primary to make changes.",
            ),
            StoreError::Schema(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Run posthaste migrate, with the same version as this console.",
            ),
            StoreError::Denied(_) => (
                StatusCode::FORBIDDEN,
                "Grant posthaste_worker to its role; 'posthaste migrate --roles' creates it.",
            ),
            StoreError::Refused(_) => (StatusCode::BAD_REQUEST, "Go back and correct your input."),
            StoreError::Failed(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Nothing was changed. Run posthaste doctor to find the cause.",
            ),
        };
        Self::new(status, error.to_string(), then)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
