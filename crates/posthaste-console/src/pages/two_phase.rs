//! Transactions over several documents: the open ones, what blocks them, and remedies.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use posthaste_elastic::two_phase::{Blocker, Effect, Record, State as Where, Stuck};

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::fault::Fault;
use crate::format;
use crate::guard::Visit;
use crate::two_phase::{MAX_OPEN, MAX_STUCK, Overview};

/// Documents of a transaction that are named at most.
const MAX_NAMED_DOCUMENTS: usize = 6;
/// Delay in seconds after which recovery counts as not running.
const MAX_RECOVERY_DELAY_SECONDS: f64 = 120.0;

/// An open transaction, as a row of a table.
#[derive(Default)]
struct TransactionRow {
    id: String,
    state: String,
    class: &'static str,
    means: &'static str,
    effects: String,
    age: String,
    unmoved: String,
    attempts: String,
    next: String,
    /// Its blockers, each with a remedy.
    blockers: Vec<(String, String)>,
}

/// The transactions, in words.
struct OverviewText {
    stuck: Vec<TransactionRow>,
    open: Vec<TransactionRow>,
    has_more_stuck: bool,
    has_more: bool,
    took: String,
}

#[derive(Template)]
#[template(path = "two_phase.html")]
struct TwoPhasePage {
    frame: Frame,
    /// Whether a search server is configured.
    is_set: bool,
    shown: Option<OverviewText>,
    /// The reason why nothing is shown.
    fault: String,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let seen = match &app.two_phase {
        Some(two_phase) => Some(two_phase.cached_overview().await),
        None => None,
    };
    let title = "Two-phase transactions";
    let frame = Frame::new(&app, &visit, &figures, title, "/two-phase");
    let two_phase = TwoPhasePage {
        frame,
        is_set: seen.is_some(),
        fault: match &seen {
            Some(Err(why)) => format::one_line(why, 300),
            _ => String::new(),
        },
        shown: seen
            .and_then(Result::ok)
            .map(|overview| overview_text(&overview, Timestamp::now())),
    };
    Ok(page(StatusCode::OK, &two_phase))
}

fn overview_text(overview: &Overview, now: Timestamp) -> OverviewText {
    let is_stuck = |id: &str| overview.stuck.iter().any(|one| one.id == id);
    let open = overview.open.iter().take(MAX_OPEN);
    let open = open.filter(|one| !is_stuck(&one.id));
    OverviewText {
        stuck: overview
            .stuck
            .iter()
            .map(|one| stuck_row(one, now))
            .collect(),
        open: open
            .map(|one| transaction_row(&one.id, &one.record, now))
            .collect(),
        has_more_stuck: overview.stuck.len() >= MAX_STUCK,
        has_more: overview.open.len() > MAX_OPEN,
        took: format::precise_duration(overview.took.as_secs_f64()),
    }
}

fn transaction_row(id: &str, record: &Result<Record, String>, now: Timestamp) -> TransactionRow {
    let id = format::one_line(id, 80);
    match record {
        Ok(record) => {
            let (class, means) = state_meaning(record.transaction_state);
            TransactionRow {
                id,
                state: record.transaction_state.to_string(),
                class,
                means,
                effects: effects_text(&record.effects),
                age: age_text(record.creation_time.as_deref(), now),
                unmoved: age_text(record.modification_time.as_deref(), now),
                attempts: record.attempts.unwrap_or_default().to_string(),
                next: match seconds_since(record.next_attempt_at.as_deref(), now) {
                    None => "–".to_owned(),
                    Some(ago) if ago > 0.0 => format!("overdue by {}", format::age(ago)),
                    Some(ago) => format!("in {}", format::age(-ago)),
                },
                blockers: Vec::new(),
            }
        }
        Err(why) => TransactionRow {
            id,
            state: "unreadable".to_owned(),
            class: "failing",
            means: "another client has written it",
            effects: format::one_line(why, 200),
            ..TransactionRow::default()
        },
    }
}

fn stuck_row(stuck: &Stuck, now: Timestamp) -> TransactionRow {
    let blockers: Vec<(String, String)> = match (&stuck.record, stuck.blockers.is_empty()) {
        (Err(_), true) => vec![(
            "it cannot be read".to_owned(),
            "correct the document, or delete it if it is not needed".to_owned(),
        )],
        (Ok(record), true) => vec![waiting_text(record, now)],
        _ => stuck.blockers.iter().map(blocker_text).collect(),
    };
    TransactionRow {
        blockers,
        ..transaction_row(&stuck.id, &stuck.record, now)
    }
}

/// Describes a transaction that is not blocked: it waits for recovery.
fn waiting_text(record: &Record, now: Timestamp) -> (String, String) {
    let late = seconds_since(record.next_attempt_at.as_deref(), now)
        .is_none_or(|ago| ago > MAX_RECOVERY_DELAY_SECONDS);
    let what = match late {
        true => "nothing; recovery has not run yet",
        false => "nothing; recovery runs again",
    };
    let then = match late {
        true => "posthaste two-phase recover",
        false => "",
    };
    (what.to_owned(), then.to_owned())
}

fn blocker_text(blocker: &Blocker) -> (String, String) {
    let then = match blocker {
        Blocker::Missing(document) => {
            format!(
                "posthaste two-phase open {}=0",
                format::one_line(document, 64)
            )
        }
        Blocker::Refused(document, _) => {
            format!(
                "posthaste two-phase balance {}",
                format::one_line(document, 64)
            )
        }
        Blocker::Rule(_) | Blocker::Unreadable(_) => "posthaste two-phase audit".to_owned(),
    };
    (format::one_line(&blocker.to_string(), 200), then)
}

/// Returns the CSS class and the meaning of a state.
fn state_meaning(state: Where) -> (&'static str, &'static str) {
    match state {
        Where::Created => ("scheduled", "not begun"),
        Where::Pending => ("running", "documents are being prepared"),
        Where::Committed => ("completed", "decided: commit"),
        Where::Terminating => ("retrying", "decided: roll back"),
        Where::Finished => ("completed", "committed"),
        Where::RolledBack => ("idle", "rolled back"),
    }
}

/// Describes the effects without the values that they set.
fn effects_text(effects: &[Effect]) -> String {
    let one = |effect: &Effect| {
        let document = format::one_line(&effect.document, 64);
        let adds = match effect.add {
            0 => String::new(),
            add @ 1.. => format!(" +{}", format::count(add)),
            add => format!(" {}", format::count(add)),
        };
        let sets = match effect.set.len() {
            0 => String::new(),
            many => {
                let many = i64::try_from(many).unwrap_or(i64::MAX);
                format!(" sets {}", format::pluralize(many, "field", "fields"))
            }
        };
        format!("{document}{adds}{sets}")
    };
    let mut text: Vec<String> = effects.iter().take(MAX_NAMED_DOCUMENTS).map(one).collect();
    if effects.len() > MAX_NAMED_DOCUMENTS {
        let more = i64::try_from(effects.len() - MAX_NAMED_DOCUMENTS).unwrap_or(i64::MAX);
        text.push(format!("{} more", format::count(more)));
    }
    text.join(", ")
}

fn age_text(at: Option<&str>, now: Timestamp) -> String {
    match seconds_since(at, now) {
        Some(ago) => format::age(ago.max(0.0)),
        None => "–".to_owned(),
    }
}

fn seconds_since(at: Option<&str>, now: Timestamp) -> Option<f64> {
    let at: Timestamp = at?.parse().ok()?;
    Some(format::seconds_between(at, now))
}
