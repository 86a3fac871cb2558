//! The answers of the fake.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
    /// Whether a document was written: a real server answers only when a replica of the shard has
    /// it too.
    pub(super) wrote: bool,
}

impl Reply {
    pub(super) fn ok(body: Value) -> Self {
        Self {
            status: 200,
            body,
            wrote: false,
        }
    }

    pub(super) fn error(status: u16, named: &str, reason: &str) -> Self {
        Self {
            status,
            body: json!({"error": {"type": named, "reason": reason}, "status": status}),
            wrote: false,
        }
    }

    pub(super) fn no_index(index: &str) -> Self {
        let reason = format!("no such index [{index}]");
        Self::error(404, "index_not_found_exception", &reason)
    }

    pub(super) fn acknowledged() -> Self {
        Self::ok(json!({"acknowledged": true}))
    }

    pub(super) fn too_many() -> Self {
        let reason = "rejected execution of coordinating operation";
        Self::error(429, "rejected_execution_exception", reason)
    }

    pub(super) fn unavailable() -> Self {
        let reason = "primary shard is not active";
        Self::error(503, "unavailable_shards_exception", reason)
    }
}
