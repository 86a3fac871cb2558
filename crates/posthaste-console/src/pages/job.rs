//! The page of a job: its timeline, its properties, and its arguments.

mod order;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use posthaste::{Failure, FoundJob, JobId, State as JobState};

use super::frame::Frame;
use super::page;
use crate::address;
use crate::app::App;
use crate::fault::Fault;
use crate::filter::Filter;
use crate::format;
use crate::guard::Visit;
use crate::redact::{Piece, Redactor};
use crate::store::{self, Session, StoreError, Waiting};
use order::{KeyOrder, MAX_COUNTED_SUCCESSORS};

/// The most that is shown of the arguments, in bytes, and of an error, in characters.
const MAX_ARGUMENT_BYTES: usize = 64 * 1024;
const MAX_ERROR_CHARS: usize = 8_000;
/// The most attempts that are shown.
const MAX_SHOWN_ATTEMPTS: usize = 50;

/// An event of the past, or an expected one.
struct TimelineEntry {
    /// `ok`, `busy`, `bad` or empty.
    class: &'static str,
    what: String,
    time: String,
    error: Option<String>,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    id: i64,
    name: String,
    state: &'static str,
    timeline: Vec<TimelineEntry>,
    facts: Vec<(&'static str, String)>,
    /// The addresses of its queue and of lists of related jobs.
    queue_page: String,
    queue: String,
    queue_link: String,
    key_link: Option<String>,
    name_link: String,
    /// The jobs that wait for it, if it has an ordering key.
    order: Option<KeyOrder>,
    arguments: Vec<Piece>,
    bytes: String,
    is_cut: bool,
    redacted: usize,
    /// The actions that are possible in its state.
    actions: Vec<Button>,
}

struct Button {
    action: &'static str,
    label: &'static str,
    key: &'static str,
    class: &'static str,
    command: String,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let number: i64 = id
        .parse()
        .map_err(|_| unknown_job(&format::one_line(&id, 40)))?;
    let JobData {
        job,
        failures,
        waiting,
    } = read_job(&app, JobId(number))
        .await?
        .ok_or_else(|| unknown_job(&id))?;
    let figures = app.collector.figures().await?;
    let now = figures.snapshot.server.at;
    let (pieces, redacted) = app.secrets.format_indented(job.kwargs_json());
    let (arguments, is_cut) = truncate_pieces(pieces);
    let name = format::one_line(&job.name, 120);
    let job_page = JobPage {
        frame: Frame::new(&app, &visit, &figures, name.clone(), "/jobs"),
        id: job.id.0,
        state: format::state_name(job.state),
        timeline: timeline(&job, &failures, now, &app.secrets),
        facts: job_facts(&job, now, &app.secrets),
        order: job
            .ordering_key
            .as_ref()
            .filter(|_| !has_ended(job.state))
            .map(|_| KeyOrder::from_waiting(number, &waiting, now)),
        queue_page: address::queue_page(&job.queue),
        queue: format::one_line(&job.queue, 80),
        queue_link: address::queue_jobs(&job.queue),
        key_link: job.ordering_key.as_deref().map(address::key_jobs),
        name_link: address::filtered_jobs(
            "/jobs",
            &Filter {
                name: Some(job.name.clone()),
                ..Filter::default()
            },
        ),
        arguments,
        bytes: format::bytes(i64::try_from(job.kwargs_json().len()).unwrap_or(i64::MAX)),
        is_cut,
        redacted,
        actions: action_buttons(&job),
        name,
    };
    Ok(page(StatusCode::OK, &job_page))
}

fn unknown_job(id: &str) -> Fault {
    let then = "It may be completed and no longer kept (posthaste queues keep sets for how long), \
                or it never existed.";
    Fault::new(
        StatusCode::NOT_FOUND,
        format!("job {id} was not found"),
        then,
    )
}

/// The data of a job.
struct JobData {
    job: FoundJob,
    failures: Vec<Failure>,
    /// The jobs that wait for their turn of the same ordering key.
    waiting: Vec<Waiting>,
}

async fn read_job(app: &App, id: JobId) -> Result<Option<JobData>, StoreError> {
    let session = Session::begin_read(&app.pool).await?;
    let Some(job) = session.jobs()?.find(id).await? else {
        session.commit().await?;
        return Ok(None);
    };
    let failures = session.jobs()?.failures(id).await?;
    let waiting = match &job.ordering_key {
        Some(key) if !has_ended(job.state) => {
            store::waiting_for_turn(&session, key, MAX_COUNTED_SUCCESSORS).await?
        }
        _ => Vec::new(),
    };
    session.commit().await?;
    Ok(Some(JobData {
        job,
        failures,
        waiting,
    }))
}

/// Returns whether a job has ended, so that no other job waits for it.
fn has_ended(state: JobState) -> bool {
    matches!(
        state,
        JobState::Completed
            | JobState::Dead
            | JobState::Discarded
            | JobState::Expired
            | JobState::Cancelled
    )
}

fn timeline(
    job: &FoundJob,
    failures: &[Failure],
    now: Timestamp,
    secrets: &Redactor,
) -> Vec<TimelineEntry> {
    let at = |at: Timestamp| format::time(at, now);
    let plain = |class, what: String, time: String| TimelineEntry {
        class,
        what,
        time,
        error: None,
    };
    let mut timeline = vec![plain("ok", "Enqueued".to_owned(), at(job.enqueued_at))];
    if failures.len() > MAX_SHOWN_ATTEMPTS {
        let left_out = i64::try_from(failures.len() - MAX_SHOWN_ATTEMPTS).unwrap_or(i64::MAX);
        let what = format!(
            "{} before these",
            format::pluralize(left_out, "attempt", "attempts")
        );
        timeline.push(plain("", what, String::new()));
    }
    let first_shown = failures.len().saturating_sub(MAX_SHOWN_ATTEMPTS);
    timeline.extend(failures[first_shown..].iter().map(|failure| {
        TimelineEntry {
            class: "bad",
            what: failure_text(failure),
            time: at(failure.at),
            error: failure
                .error
                .as_deref()
                .map(|error| format::several_lines(&secrets.redact_error(error), MAX_ERROR_CHARS)),
        }
    }));
    if let Some(claimed_at) = job.claimed_at {
        let delay = format::seconds_between(job.enqueued_at.max(job.scheduled_at), claimed_at);
        let worker = match (&job.worker_name, job.worker) {
            (Some(name), _) => format::one_line(name, 80),
            (None, Some(id)) => format!("worker {id}"),
            (None, None) => "a worker".to_owned(),
        };
        let what = match failures.is_empty() && delay >= 0.0 {
            true => format!(
                "Started by {worker}, {} after it was due",
                format::precise_duration(delay)
            ),
            false => format!("Started by {worker}"),
        };
        timeline.push(plain("busy", what, at(claimed_at)));
    }
    timeline.push(state_entry(job, now));
    timeline
}

fn failure_text(failure: &Failure) -> String {
    let by = failure
        .worker_name
        .as_deref()
        .map(|name| format::one_line(name, 80));
    let by = by.map(|name| format!(" on {name}")).unwrap_or_default();
    let attempt = failure.attempt;
    match failure.outcome.as_str() {
        "retried" => format!("Attempt {attempt} failed{by}"),
        "dead" => format!("Attempt {attempt} failed{by}; it was the last one"),
        "discarded" => format!("Attempt {attempt}: discarded by its handler{by}"),
        "cancelled" => format!("Attempt {attempt}{by} was cancelled"),
        "crashed" => format!("Attempt {attempt}: its worker died{by}"),
        other => format!(
            "Attempt {attempt} ended{by}: {}",
            format::one_line(other, 40)
        ),
    }
}

/// Returns the entry about its current state, or what happens next.
fn state_entry(job: &FoundJob, now: Timestamp) -> TimelineEntry {
    let until = format::seconds_between(now, job.scheduled_at);
    let due = match until > 0.0 {
        true => format!("in {}", format::age(until)),
        false => format::time(job.scheduled_at, now),
    };
    let ended = job
        .ended_at
        .map(|at| format::time(at, now))
        .unwrap_or_default();
    let next = job.attempts + 1;
    let (class, what, time) = match job.state {
        JobState::Scheduled => ("", "Due".to_owned(), due),
        JobState::Retrying => ("", format!("Attempt {next} is due"), due),
        JobState::Available => ("", "Waiting for a worker".to_owned(), due),
        JobState::Blocked => (
            "",
            "Waiting for the previous job with its ordering key".to_owned(),
            due,
        ),
        JobState::Running => ("busy", "Runs".to_owned(), String::new()),
        JobState::Awaiting => ("busy", "Waiting for confirmation".to_owned(), String::new()),
        JobState::Quarantined => (
            "bad",
            "Its worker died; it runs alone next".to_owned(),
            String::new(),
        ),
        JobState::Completed => ("ok", "Done".to_owned(), ended),
        JobState::Dead => ("bad", "Dead: no attempts left".to_owned(), ended),
        JobState::Discarded => ("bad", "Discarded by its handler".to_owned(), ended),
        JobState::Expired => (
            "bad",
            "Expired before a worker claimed it".to_owned(),
            format::time(job.expires_at, now),
        ),
        JobState::Cancelled => ("bad", "Cancelled".to_owned(), ended),
    };
    TimelineEntry {
        class,
        what,
        time,
        error: None,
    }
}

fn job_facts(job: &FoundJob, now: Timestamp, secrets: &Redactor) -> Vec<(&'static str, String)> {
    let attempts = match job.max_attempts {
        Some(most) => format!("{} of {most} counted", job.attempts),
        None => format!("{} counted, no limit", job.attempts),
    };
    let mut facts = vec![
        ("Delivery id", job.delivery_id.to_string()),
        ("Priority", job.priority.to_string()),
        ("Attempts", attempts),
        ("Due", format::time(job.scheduled_at, now)),
        ("Expires", format::time(job.expires_at, now)),
    ];
    let texts = [
        ("Ordering key", job.ordering_key.as_deref()),
        ("Unique key", job.unique_key.as_deref()),
        ("Tag", Some(job.tag.as_str()).filter(|tag| !tag.is_empty())),
        ("Trace", job.trace.as_deref()),
    ];
    for (what, text) in texts {
        facts.extend(text.map(|text| (what, format::one_line(text, 300))));
    }
    // Attempts are deleted after some time; this error is retained with the job.
    if let Some(error) = &job.last_error {
        facts.push((
            "Last error",
            format::one_line(&secrets.redact_error(error), 300),
        ));
    }
    facts
}

fn action_buttons(job: &FoundJob) -> Vec<Button> {
    let button = |action, label, key, class| Button {
        action,
        label,
        key,
        class,
        command: format!("posthaste jobs {action} {}", job.id),
    };
    let retry = button("retry", "Retry now", "r", "main");
    let cancel = button("cancel", "Cancel", "c", "bad");
    match job.state {
        JobState::Scheduled | JobState::Retrying | JobState::Quarantined => vec![retry, cancel],
        JobState::Available | JobState::Blocked | JobState::Running | JobState::Awaiting => {
            vec![cancel]
        }
        JobState::Dead | JobState::Discarded | JobState::Expired | JobState::Cancelled => {
            let mut delete = button("delete", "Delete", "", "bad");
            // The confirmation page shows the SQL statement.
            delete.command = String::new();
            vec![button("redrive", "Redrive", "r", "main"), delete]
        }
        JobState::Completed => Vec::new(),
    }
}

/// Returns the beginning of long arguments, and whether something was cut off.
fn truncate_pieces(pieces: Vec<Piece>) -> (Vec<Piece>, bool) {
    let mut left = MAX_ARGUMENT_BYTES;
    let mut shown = Vec::new();
    for piece in pieces {
        let length = piece.text.chars().count();
        if length > left {
            let text = format::several_lines(&piece.text, left);
            shown.push(Piece { text, ..piece });
            return (shown, true);
        }
        left -= length;
        let text = format::several_lines(&piece.text, length);
        shown.push(Piece { text, ..piece });
    }
    (shown, false)
}
