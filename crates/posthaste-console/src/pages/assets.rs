//! Style and script, embedded when the program was built.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("../../assets/console.css");
const SCRIPT: &str = include_str!("../../assets/console.js");
/// Cache lifetime: pages request them by their version.
const CACHE_FOR_A_YEAR: &str = "public, max-age=31536000, immutable";

/// Returns the version, which changes when one of them does.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let digest = Sha256::new()
            .chain_update(STYLE)
            .chain_update(SCRIPT)
            .finalize();
        digest
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    });
    VERSION.as_str()
}

pub(crate) async fn style() -> Response {
    asset_response("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn script() -> Response {
    asset_response("text/javascript; charset=utf-8", SCRIPT)
}

fn asset_response(kind: &'static str, text: &'static str) -> Response {
    (
        [(CONTENT_TYPE, kind), (CACHE_CONTROL, CACHE_FOR_A_YEAR)],
        text,
    )
        .into_response()
}
