//! Sentences about transactions, for people and for programs.

use posthaste::HolderKind;
use serde::Serialize;

use super::act::Outcome;
use super::decide::{Decision, Seen, Step};
use super::redact::redact;

/// A transaction that has reached an age of its rule.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) server: String,
    pub(crate) text: String,
    pid: Option<i32>,
    name: Option<String>,
    role: Option<String>,
    application: Option<String>,
    address: Option<String>,
    database: Option<String>,
    state: Option<String>,
    seconds: Option<f64>,
    /// Transactions since the oldest row version that it may still read.
    transactions: Option<i64>,
    is_oldest: bool,
    queue_tables: i64,
    has_enqueued: bool,
    query: Option<String>,
}

/// A step that was taken, or that a dry run would take.
#[derive(Debug, Serialize)]
pub(crate) struct Action {
    pub(crate) action: Step,
    pub(crate) outcome: String,
    pub(crate) rule: usize,
    pub(crate) server: String,
    pid: Option<i32>,
    name: Option<String>,
    pub(crate) text: String,
}

pub(super) fn finding(seen: &Seen) -> Finding {
    let holder = &seen.holder;
    Finding {
        server: seen.server.clone(),
        text: sentence(seen),
        pid: holder.pid,
        name: holder.name.clone(),
        role: holder.role.clone(),
        application: holder.application.clone(),
        address: holder.address.clone(),
        database: holder.database.clone(),
        state: holder.state.clone(),
        seconds: holder.seconds,
        transactions: holder.transactions,
        is_oldest: seen.is_oldest,
        queue_tables: seen.queue_tables,
        has_enqueued: seen.has_enqueued,
        query: holder.query.as_deref().map(redact),
    }
}

pub(super) fn action(decision: &Decision<'_>, outcome: &Outcome) -> Action {
    let seen = decision.seen;
    Action {
        action: decision.step,
        outcome: outcome.word().to_owned(),
        rule: decision.rule,
        server: seen.server.clone(),
        pid: seen.holder.pid,
        name: seen.holder.name.clone(),
        text: format!(
            "{} {}: {}",
            verb(decision.step),
            subject(seen),
            outcome.word()
        ),
    }
}

pub(super) fn log(decision: &Decision<'_>, outcome: &Outcome) {
    let seen = decision.seen;
    let holder = sentence(seen);
    let waited = decision.age.as_secs();
    let statement = seen.holder.query.as_deref().map(redact);
    let action = verb(decision.step);
    let outcome = outcome.word();
    match (decision.step, outcome) {
        (Step::Warn, _) => tracing::warn!(
            holder,
            waited,
            statement,
            "a transaction has been open for too long"
        ),
        (_, "dry run") => tracing::warn!(
            holder,
            waited,
            statement,
            action,
            "dry run: txwatch would act on a transaction"
        ),
        _ => tracing::warn!(
            holder,
            waited,
            statement,
            action,
            outcome,
            "txwatch acted on a transaction"
        ),
    }
}

fn verb(step: Step) -> &'static str {
    match step {
        Step::Warn => "warn about",
        Step::Cancel => "cancel",
        Step::Terminate => "terminate",
    }
}

/// `primary: session 4711 (role app, application psql, from 10.0.0.5, database shop)`.
fn subject(seen: &Seen) -> String {
    let holder = &seen.holder;
    let name = holder.name.as_deref().unwrap_or_default();
    let what = match holder.kind {
        HolderKind::Prepared => format!("prepared transaction {name}"),
        HolderKind::Slot => format!("replication slot {name}"),
        HolderKind::Replica => "replica".to_owned(),
        _ => format!("session {}", holder.pid.unwrap_or_default()),
    };
    let details = [
        ("role", &holder.role),
        ("application", &holder.application),
        ("from", &holder.address),
        ("database", &holder.database),
    ];
    let details = details.iter().filter_map(|(word, value)| {
        let value = value.as_deref().filter(|value| !value.is_empty())?;
        Some(format!("{word} {value}"))
    });
    let details: Vec<String> = details.collect();
    match details.is_empty() {
        true => format!("{}: {what}", seen.server),
        false => format!("{}: {what} ({})", seen.server, details.join(", ")),
    }
}

/// Who it is, since when, and what it costs.
pub(super) fn sentence(seen: &Seen) -> String {
    let holder = &seen.holder;
    let mut text = subject(seen);
    if let Some(seconds) = holder.seconds {
        text.push_str(&format!(
            " has been open for {}",
            age(seconds.max(0.0) as u64)
        ));
    }
    if let Some(state) = holder.state.as_deref() {
        text.push_str(&format!(", {state}"));
    }
    let mut costs = Vec::new();
    match (holder.transactions, seen.has_feedback) {
        (Some(_), Some(false)) => costs.push(
            "the primary keeps no rows for it (hot_standby_feedback is off), but replay may wait \
             for it"
                .to_owned(),
        ),
        (Some(transactions), _) => {
            let oldest = match seen.is_oldest {
                true => ", more than any other here",
                false => "",
            };
            costs.push(format!(
                "VACUUM cannot remove rows that died in the last {transactions} \
                 transactions{oldest}"
            ));
        }
        (None, _) if holder.kind == HolderKind::Session => costs.push(
            "it keeps no rows: it has no snapshot between statements and has written nothing"
                .to_owned(),
        ),
        (None, _) => {}
    }
    if seen.has_enqueued {
        costs.push("it has enqueued jobs, so the space of their segment is kept".to_owned());
    } else if seen.queue_tables > 0 {
        costs.push(format!(
            "it has locks on {} tables of queues, which cannot be truncated meanwhile",
            seen.queue_tables
        ));
    }
    for cost in costs {
        text.push_str("; ");
        text.push_str(&cost);
    }
    text
}

fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
