//! The jobs of a synced table, as `posthaste.sync` and the triggers write them
//! (sql/functions/sync.sql).

use serde::{Deserialize, Serialize};

use super::compare::SyncRequest;
use posthaste::Error;
use posthaste::{Job, Misread, NewJob};

#[derive(Serialize, Deserialize)]
struct IndexJobArguments {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force: bool,
}

/// Returns the name of a synced table's queue, which is also the name of its jobs.
pub fn queue(table: &str) -> String {
    format!("sync.{table}")
}

/// Returns a job that indexes one document of a table without triggers. Enqueue it in the
/// transaction of the change. It is retried until it expires. If the program also indexes directly,
/// [schedule](NewJob::scheduled_at) it 60 s ahead.
///
/// ```
/// use posthaste_sync::{SyncRequest, index_job};
/// # fn main() -> Result<(), posthaste::Error> {
/// let changed = SyncRequest { id: "7".into(), ..SyncRequest::default() };
/// let deleted = SyncRequest { id: "8".into(), deleted: Some(41), ..SyncRequest::default() };
/// let changed = index_job("annotation", &changed)?;
/// let deleted = index_job("annotation", &deleted)?;
/// # Ok(()) }
/// ```
pub fn index_job(table: &str, request: &SyncRequest) -> Result<NewJob, Error> {
    let arguments = IndexJobArguments {
        id: request.id.clone(),
        deleted: request.deleted,
        force: request.force,
    };
    let job = NewJob::new(queue(table), &arguments)?;
    Ok(job.queue(queue(table)).max_attempts(None))
}

/// Reads the request of a job. Other arguments belong to the program.
pub(super) fn parse_request(job: &Job) -> Result<SyncRequest, Misread> {
    let IndexJobArguments { id, deleted, force } = job.arguments()?;
    Ok(SyncRequest { id, force, deleted })
}
