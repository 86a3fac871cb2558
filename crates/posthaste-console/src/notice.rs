//! Notices about the last action on the next page. A cookie for one page carries a word and a
//! number, so another site cannot choose the text. Addresses do not change, so a page that is
//! reloaded or shared shows no notice.

use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};

use crate::format::pluralize;

const NOTICE_COOKIE: &str = "posthaste_notice";

/// Returns the notice for the value of the cookie; `None` if it is unknown.
pub(crate) fn notice_text(value: &str) -> Option<String> {
    let (did, jobs) = value.split_once('.')?;
    let jobs: i64 = jobs.parse().unwrap_or(0);
    let jobs = jobs.max(0);
    let (job, runs) = (
        pluralize(jobs, "job", "jobs"),
        pluralize(jobs, "job runs", "jobs run"),
    );
    Some(match did {
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
            pluralize(jobs, "document is", "documents are")
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

/// Redirects to a page, which shows what was done.
pub(crate) fn redirect_with_notice(back: &str, did: &str, jobs: usize) -> Response {
    let mut response = Redirect::to(back).into_response();
    set_cookie(&mut response, &format!("{did}.{jobs}"), 60);
    response
}

fn set_cookie(response: &mut Response, value: &str, seconds: u32) {
    let cookie =
        format!("{NOTICE_COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append("set-cookie", cookie);
    }
}

/// Returns the value of the cookie, if the request has one.
pub(crate) fn cookie_value(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all("cookie").iter();
    let cookies = cookies.filter_map(|one| one.to_str().ok());
    let mut pairs = cookies.flat_map(|one| one.split(';'));
    let value = pairs.find_map(|one| one.trim().strip_prefix(NOTICE_COOKIE)?.strip_prefix('='));
    value.map(str::to_owned)
}

/// Removes the cookie after a page has shown it.
pub(crate) fn remove_cookie(response: &mut Response) {
    set_cookie(response, "", 0);
}
