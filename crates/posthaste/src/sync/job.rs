//! The jobs of a synced table, as `posthaste.sync` and the triggers write them (migrations/0022_sync.sql).

use serde::{Deserialize, Serialize};

use super::pass::Wish;
use crate::error::Error;
use crate::job::{Job, NewJob};

#[derive(Serialize, Deserialize)]
struct Arguments {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force: bool,
}

/// The queue of a synced table, which is also the name of its jobs.
pub fn queue(table: &str) -> String {
    format!("sync.{table}")
}

/// A job for one document of a table without triggers, to be enqueued with the change: tried until it expires. Where the program indexes directly, let it be
/// [scheduled](NewJob::scheduled_at) 60 s ahead.
///
/// ```
/// use posthaste::sync::{Wish, index_job};
/// # fn main() -> Result<(), posthaste::Error> {
/// let changed = index_job("annotation", &Wish { id: "7".into(), ..Wish::default() })?;
/// let deleted = index_job("annotation", &Wish { id: "8".into(), deleted: Some(41), ..Wish::default() })?;
/// # Ok(()) }
/// ```
pub fn index_job(table: &str, wish: &Wish) -> Result<NewJob, Error> {
    let arguments = Arguments {
        id: wish.id.clone(),
        deleted: wish.deleted,
        force: wish.force,
    };
    let job = NewJob::new(queue(table), &arguments)?;
    Ok(job.queue(queue(table)).max_attempts(None))
}

/// What a job asks for; other arguments are its program's own.
pub(super) fn wish(job: &Job) -> Result<Wish, String> {
    let Arguments { id, deleted, force } = job.arguments()?;
    Ok(Wish { id, force, deleted })
}
