//! Index sync: the lag of each index, and its problems.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste_observe::{Kind, Sums};
use posthaste_sync::{Problem, SyncLag};

use super::frame::Frame;
use super::page;
use crate::address;
use crate::app::App;
use crate::fault::Fault;
use crate::figures::{Cell, Figures};
use crate::filter::Filter;
use crate::format;
use crate::guard::Visit;
use crate::store::{self, AuditResult, StoreError, Synced};

/// The most reasons of a sync that are shown; reasons that name documents may be thousands.
const MAX_REASONS: usize = 5;

/// A synced table, as a row and a card.
struct SyncRow {
    name: String,
    relation: String,
    key: String,
    delay: String,
    columns: Vec<String>,
    /// The figures of its changes, which an open page updates.
    cells: Vec<Cell>,
    lag: String,
    given_up: String,
    is_given_up: bool,
    /// The addresses of its jobs, of those that were given up, and of those of its re-indexes.
    jobs: String,
    dead: String,
    reindex_jobs: String,
    state: &'static str,
    class: &'static str,
    problems: Vec<ReasonRow>,
    /// The result of the last audit, and whether both sides differed when it ended.
    audited: String,
    differs: bool,
    reindex_queue: String,
    /// Documents that re-indexes have not checked yet.
    left: Cell,
    is_left: bool,
    done: String,
    is_resting: bool,
    cancel: String,
}

/// A reason why changes are not indexed.
struct ReasonRow {
    text: String,
    jobs: String,
    lasts: String,
    is_given_up: bool,
}

#[derive(Template)]
#[template(path = "sync.html")]
struct SyncPage {
    frame: Frame,
    tables: Vec<SyncRow>,
    /// Whether the problems were read in time.
    is_whole: bool,
    took: String,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let started = Instant::now();
    let synced = store::read_syncs(&app.pool).await?;
    let behind = match store::read_lags(&app.pool, &figures.snapshot).await {
        Err(StoreError::Late(_)) => None,
        behind => Some(behind?),
    };
    let late = app.settings.thresholds.sync_late.as_secs_f64();
    let tables = synced.into_iter().map(|one| {
        let behind = behind.as_ref().map(|all| all.get(&one.name).cloned());
        sync_row(&figures, one, behind.map(Option::unwrap_or_default), late)
    });
    let tables = tables.collect();
    let is_whole = behind.is_some();
    let sync = SyncPage {
        frame: Frame::new(&app, &visit, &figures, "Index sync", "/sync"),
        tables,
        is_whole,
        took: format::precise_duration(started.elapsed().as_secs_f64()),
    };
    Ok(page(StatusCode::OK, &sync))
}

fn given_up(sums: &Sums) -> i64 {
    sums.dead + sums.discarded + sums.expired
}

/// Describes a synced table. Without its lag, which may not have been read, it has no problems.
fn sync_row(figures: &Figures, one: Synced, behind: Option<SyncLag>, late: f64) -> SyncRow {
    let is_read = behind.is_some();
    let behind = behind.unwrap_or_default();
    let (queue, again) = (
        posthaste_sync::queue(&one.name),
        posthaste_sync::reindex_queue(&one.name),
    );
    let snapshot = &figures.snapshot;
    let by_queue = snapshot.sums_by_queue();
    let of = |queue: &str| by_queue.get(queue).copied().unwrap_or_default();
    let (changes, reindex) = (of(&queue), of(&again));
    let line = figures.queues.iter().find(|line| line.name == queue);
    let lag = snapshot.oldest_waiting(&queue).map(|one| one.seconds);
    let lag = lag.into_iter().chain(behind.seconds).reduce(f64::max);
    let mut found = figures.findings.iter();
    let is_stopped =
        found.any(|found| found.kind == Kind::SyncNoWorker && found.subject == one.name);
    let (state, class) = match (behind.fails_for(), lag) {
        (Some(_), _) => ("failing", "failing"),
        (None, _) if is_stopped => ("not running", "failing"),
        (None, Some(lag)) if lag > late => ("late", "failing"),
        _ if !is_read => ("not read", "idle"),
        _ => ("up to date", "up"),
    };
    let gone = given_up(&changes) + given_up(&reindex);
    let state_of = |queue: &str, state: Option<posthaste::State>| Filter {
        queue: Some(queue.to_owned()),
        state,
        ..Filter::default()
    };
    let dead = state_of(&queue, Some(posthaste::State::Dead));
    let all = state_of(&again, None).to_string();
    SyncRow {
        name: format::one_line(&one.name, 60),
        relation: format::one_line(&one.relation, 120),
        key: format::one_line(&one.key, 60),
        delay: format::age(one.delay),
        columns: one.columns,
        // The queue has no figures before its first job.
        cells: line.map_or_else(
            || empty_cells(&queue),
            |line| line.cells.iter().take(4).cloned().collect(),
        ),
        lag: lag.map_or_else(|| "–".to_owned(), format::age),
        given_up: format::count(gone),
        is_given_up: gone > 0,
        jobs: address::queue_jobs(&queue),
        dead: address::filtered_jobs("/dead", &dead),
        reindex_jobs: address::queue_jobs(&again),
        state,
        class,
        problems: behind
            .problems
            .iter()
            .take(MAX_REASONS)
            .map(reason_row)
            .collect(),
        audited: one.audited.as_ref().map_or_else(String::new, audit_text),
        differs: one.audited.as_ref().is_some_and(audit_differs),
        left: Cell::number(format!("queue.{again}.available"), reindex.pending()),
        is_left: reindex.pending() > 0,
        done: format::count(reindex.done),
        is_resting: snapshot.paused_at(&again).is_some(),
        cancel: address::with_fields("/bulk", &[("do", "cancel"), ("filter", &all)]),
        reindex_queue: again,
    }
}

fn empty_cells(queue: &str) -> Vec<Cell> {
    let what = ["available", "running", "retrying", "scheduled"];
    what.iter()
        .map(|what| Cell::number(format!("queue.{queue}.{what}"), 0))
        .collect()
}

/// Returns whether rows and documents differed when the audit ended.
fn audit_differs(audit: &AuditResult) -> bool {
    audit.differed > audit.repaired
}

fn audit_text(audit: &AuditResult) -> String {
    let (rows, documents) = (
        format::pluralize(audit.rows, "row", "rows"),
        format::pluralize(audit.documents, "document", "documents"),
    );
    let found = match (audit.differed, audit.repaired) {
        (0, _) if audit.contents => "equal by their contents".to_owned(),
        (0, _) => "equal by their versions".to_owned(),
        (all, 0) => format!("{} differ", format::count(all)),
        (all, repaired) => format!(
            "{} differed, {} repaired",
            format::count(all),
            format::count(repaired)
        ),
    };
    let ago = format::age(audit.seconds);
    format!("{rows}, {documents}, {found}, {ago} ago")
}

fn reason_row(problem: &Problem) -> ReasonRow {
    ReasonRow {
        text: format::one_line(&problem.reason, 300),
        jobs: format::pluralize(problem.jobs, "job", "jobs"),
        lasts: format::age(problem.seconds),
        is_given_up: problem.given_up,
    }
}
