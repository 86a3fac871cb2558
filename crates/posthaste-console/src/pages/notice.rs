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
        "retry" if jobs == 0 => {
            "No job was retried: none of them is scheduled or retrying.".to_owned()
        }
        "retry" => format!("{runs} as soon as a worker is free."),
        "cancel" if jobs == 0 => "No job was cancelled: they had already ended.".to_owned(),
        "cancel" => format!("{job} cancelled; workers end running ones within five seconds."),
        "redrive" if jobs == 0 => "No job was redriven.".to_owned(),
        "redrive" => format!("{job} redriven with all attempts."),
        "delete" if jobs == 0 => "No job was deleted.".to_owned(),
        "delete" => format!("{job} deleted permanently."),
        "run" if jobs == 0 => "Nothing was enqueued: the periodic job no longer exists.".to_owned(),
        "run" => "Its job was enqueued once, in addition to the schedule.".to_owned(),
        "off" if jobs == 0 => "Nothing was changed: the periodic job no longer exists.".to_owned(),
        "off" => "The periodic job is off: it enqueues nothing until it is switched on.".to_owned(),
        "on" if jobs == 0 => "Nothing was changed: the periodic job is already on, or no longer \
                              exists."
            .to_owned(),
        "on" => "The periodic job is on again, starting now.".to_owned(),
        "reindex" if jobs == 0 => "No documents match.".to_owned(),
        "reindex" => format!(
            "{} to be checked again, after all new changes.",
            counted(jobs, "document is", "documents are")
        ),
        "rest" | "wake" if jobs == 0 => {
            "Nothing changed: the capture already is in this state, or no longer exists.".to_owned()
        }
        "rest" => "The capture is paused. The server keeps its log.".to_owned(),
        "wake" => "The capture is resumed.".to_owned(),
        "accept" if jobs == 0 => {
            "Nothing changed: the gap is already accepted, or no longer exists.".to_owned()
        }
        "accept" => "The gap is accepted.".to_owned(),
        "pause" => "The queue is paused. Running jobs continue.".to_owned(),
        "resume" => "The queue is resumed.".to_owned(),
        "keep" => "Completed jobs of the queue are kept for this time.".to_owned(),
        "forget" => "Completed jobs of the queue are no longer kept.".to_owned(),
        "limit" => "The rate limit is set for all workers together.".to_owned(),
        "unlimit" => "The rate limit is removed.".to_owned(),
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
