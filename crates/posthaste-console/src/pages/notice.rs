//! What was just done, as the next page says it: the address carries a word of ours and a number,
//! and no sentence of somebody else's.

use axum::response::{IntoResponse, Redirect, Response};

use crate::form::Fields;
use crate::words::counted;

/// What the next page says.
pub(super) fn read(fields: &Fields) -> Option<String> {
    let jobs: i64 = fields
        .get("jobs")
        .and_then(|jobs| jobs.parse().ok())
        .unwrap_or(0);
    let jobs = jobs.max(0);
    let (job, runs) = (
        counted(jobs, "job", "jobs"),
        counted(jobs, "job runs", "jobs run"),
    );
    Some(match fields.get("did")? {
        "retry" if jobs == 0 => "No job was let run: none of them waits for its time.".to_owned(),
        "retry" => format!("{runs} as soon as a worker is free."),
        "cancel" if jobs == 0 => "No job was cancelled: they had ended before.".to_owned(),
        "cancel" => format!("{job} cancelled; workers end what runs within five seconds."),
        "redrive" if jobs == 0 => "No job was sent to work again.".to_owned(),
        "redrive" => format!("{job} sent to work again, with all attempts."),
        "delete" if jobs == 0 => "No job was deleted.".to_owned(),
        "delete" => format!("{job} deleted for good."),
        "run" if jobs == 0 => "Nothing was enqueued: it is no more.".to_owned(),
        "run" => "Its job was enqueued once, beside its schedule.".to_owned(),
        "off" if jobs == 0 => "Nothing was changed: it is no more.".to_owned(),
        "off" => "It is off: no job comes of it until it is switched on.".to_owned(),
        "on" if jobs == 0 => "Nothing was changed: it is on, or it is no more.".to_owned(),
        "on" => "It is on again, from now.".to_owned(),
        "reindex" if jobs == 0 => "No document is so: nothing is to be looked at.".to_owned(),
        "reindex" => format!(
            "{} to be looked at again, behind everything new.",
            counted(jobs, "document is", "documents are")
        ),
        "rest" | "wake" if jobs == 0 => "Nothing was changed: it is so, or no more.".to_owned(),
        "rest" => "The capture is paused, and the server keeps its log.".to_owned(),
        "wake" => "The capture is not paused any more.".to_owned(),
        "accept" if jobs == 0 => "Nothing was changed: it is accepted, or no more.".to_owned(),
        "accept" => "The gap is accepted.".to_owned(),
        "pause" => "The queue is paused. Running jobs go on.".to_owned(),
        "resume" => "The queue is not paused any more.".to_owned(),
        "keep" => "Done jobs of the queue are kept for so long.".to_owned(),
        "forget" => "Done jobs of the queue are not kept any more.".to_owned(),
        "limit" => "The rate is set, for all workers together.".to_owned(),
        "unlimit" => "The queue has no rate any more.".to_owned(),
        _ => return None,
    })
}

/// Back to a page, which says what was done.
pub(super) fn done(back: &str, did: &str, jobs: usize) -> Response {
    let (page, part) = match back.split_once('#') {
        Some((page, part)) => (page, format!("#{part}")),
        None => (back, String::new()),
    };
    let sign = if page.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{page}{sign}did={did}&jobs={jobs}{part}")).into_response()
}
