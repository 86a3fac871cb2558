//! Long transactions: the sessions that hold back vacuum, and the consequences.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use posthaste::{Holder, HolderKind};
use posthaste_observe::{EndedTransaction, holder_detail, holder_name};

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::format;
use crate::guard::Visit;
use crate::store::{self, DeadRows, StoreError};

/// A holder, as a row of the table.
struct HolderRow {
    who: String,
    detail: String,
    /// Its last statement, without values.
    query: String,
    lasts: String,
    is_long: bool,
    transactions: String,
    remedy: String,
}

/// A session that txwatch ended, as a row of the table.
struct EndedRow {
    at: String,
    server: String,
    session: String,
    application: String,
    lasted: String,
    action: String,
    rule: i32,
    result: String,
}

/// A table of the user, as a row of the table.
struct TableRow {
    name: String,
    dead: String,
    live: String,
    vacuumed: String,
}

#[derive(Template)]
#[template(path = "transactions.html")]
struct TransactionsPage {
    frame: Frame,
    sees_sessions: bool,
    rows: Vec<HolderRow>,
    ended: Vec<EndedRow>,
    queue: String,
    own: String,
    /// The tables; `None` if the statistics were not read in time.
    tables: Option<Vec<TableRow>>,
    took: String,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let started = Instant::now();
    let tables = match store::read_dead_rows(&app.pool).await {
        Ok(tables) => Some(tables),
        Err(StoreError::Late(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let took = format::precise_duration(started.elapsed().as_secs_f64());
    let now = figures.snapshot.server.at;
    let table = |one: DeadRows| TableRow {
        name: format::one_line(&one.name, 120),
        dead: format::count(one.dead),
        live: format::count(one.live),
        vacuumed: match one.vacuumed_at {
            Some(at) => format!(
                "{} ago",
                format::age(format::seconds_between(at, now).max(0.0))
            ),
            None => "–".to_owned(),
        },
    };
    let long = app.settings.thresholds.long_transaction.as_secs_f64();
    let holders = figures.holders();
    let frame = Frame::new(&app, &visit, &figures, "Long transactions", "/transactions");
    let transactions = TransactionsPage {
        frame,
        sees_sessions: figures.snapshot.server.sees_sessions,
        rows: holders.iter().map(|one| holder_row(one, long)).collect(),
        ended: figures
            .snapshot
            .ended
            .iter()
            .map(|one| ended_row(one, now))
            .collect(),
        queue: queue_cost_text(&app, &figures).await?,
        own: table_cost_text(
            holders
                .first()
                .and_then(|one| one.transactions)
                .unwrap_or(0),
        ),
        tables: tables.map(|all| all.into_iter().map(table).collect()),
        took,
    };
    Ok(page(StatusCode::OK, &transactions))
}

fn holder_row(holder: &Holder, long: f64) -> HolderRow {
    HolderRow {
        who: format::one_line(&holder_name(holder), 80),
        detail: format::one_line(&holder_detail(holder), 200),
        query: format::one_line(holder.query.as_deref().unwrap_or_default(), 200),
        lasts: holder.seconds.map_or_else(|| "–".to_owned(), format::age),
        is_long: holder.seconds.is_some_and(|seconds| seconds > long),
        transactions: format::count(holder.transactions.unwrap_or(0)),
        remedy: match holder.kind {
            HolderKind::Prepared => "in its database: ROLLBACK PREPARED or COMMIT PREPARED".into(),
            HolderKind::Slot => "unless it is needed: SELECT pg_drop_replication_slot(name)".into(),
            HolderKind::Replica => "on the replica: SELECT pg_terminate_backend(pid)".into(),
            _ => {
                let end = format!("pg_terminate_backend({})", holder.pid.unwrap_or_default());
                "unless it is needed: SELECT ".to_owned() + &end
            }
        },
    }
}

fn ended_row(one: &EndedTransaction, now: Timestamp) -> EndedRow {
    let text = |text: &Option<String>| format::one_line(text.as_deref().unwrap_or("–"), 80);
    EndedRow {
        at: format::time(one.at, now),
        server: format::one_line(&one.server, 80),
        session: one.pid.unwrap_or_default().to_string(),
        application: format!("{}, {}", text(&one.role), text(&one.application)),
        lasted: one.seconds.map_or_else(|| "–".to_owned(), format::age),
        action: one.action.clone(),
        rule: one.rule,
        result: format::one_line(&one.result, 120),
    }
}

/// Describes the cost for the queue.
pub(super) async fn queue_cost_text(app: &App, figures: &Figures) -> Result<String, StoreError> {
    let holders = figures.holders();
    let enqueuing = match holders.is_empty() {
        true => Vec::new(),
        false => match store::enqueuing_pids(&app.pool).await {
            Err(StoreError::Late(_)) => {
                return Ok(
                    "Unknown: the database did not return the enqueuing sessions within two \
                           seconds."
                        .to_owned(),
                );
            }
            pids => pids?,
        },
    };
    let has_enqueued = |holder: &&&Holder| match holder.kind {
        HolderKind::Session => holder.pid.is_some() && enqueuing.contains(&holder.pid),
        HolderKind::Prepared => enqueuing.contains(&None),
        _ => false,
    };
    let enqueuing = holders.iter().filter(has_enqueued).count();
    Ok(segment_cost_text(
        figures.snapshot.segments.untruncated(),
        enqueuing,
    ))
}

fn segment_cost_text(segments: i64, enqueuing: usize) -> String {
    if enqueuing > 0 {
        let number = i64::try_from(enqueuing).unwrap_or(i64::MAX);
        let have = format::pluralize(number, "open transaction has", "open transactions have");
        return format!(
            "{have} enqueued: workers get these jobs after the commit, and their segments are \
             truncated after it."
        );
    }
    match segments {
        ..3 => "None: claims are not affected, and segments are truncated.".to_owned(),
        _ => format!("{segments} segments wait to be truncated; claims are not affected."),
    }
}

/// Describes the cost for the user's own tables.
pub(super) fn table_cost_text(transactions: i64) -> String {
    match transactions {
        0 => "Nothing yet: no transaction has started since.".to_owned(),
        transactions => format!(
            "Rows that died within the last {} cannot be removed.",
            format::pluralize(transactions, "transaction", "transactions")
        ),
    }
}
