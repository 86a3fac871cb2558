//! The settings of the console, of the database and of its queues, and the installed versions. The
//! page contains no secrets.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::Frame;
use super::page;
use crate::Access;
use crate::app::App;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::format;
use crate::guard::Visit;
use crate::store;

/// The name and the value of a setting.
type Setting = (&'static str, String);

/// A part of the schema, as a row of a table.
struct Step {
    name: String,
    version: String,
    applied: String,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: Frame,
    figures: Arc<Figures>,
    console: Vec<Setting>,
    database: Vec<Setting>,
    log: Vec<Setting>,
    steps: Vec<Step>,
    took: String,
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let started = Instant::now();
    let installed = store::read_installation(&app.pool).await?;
    let took = format::precise_duration(started.elapsed().as_secs_f64());
    let now = figures.snapshot.server.at;
    let step = |one: &store::SchemaStep| Step {
        name: format::one_line(&one.name, 80),
        version: format::one_line(&one.version, 40),
        applied: format::time(one.applied_at, now),
    };
    let settings = SettingsPage {
        frame: Frame::new(&app, &visit, &figures, "Settings", "/settings"),
        console: console_settings(&app),
        database: database_settings(&figures, &installed),
        log: segment_settings(&installed.log, figures.snapshot.segments.untruncated()),
        steps: installed.steps.iter().map(step).collect(),
        took,
        figures,
    };
    Ok(page(StatusCode::OK, &settings))
}

fn console_settings(app: &App) -> Vec<Setting> {
    let settings = &app.settings;
    let access = match &settings.access {
        Access::Loopback => "everyone on this machine".to_owned(),
        Access::Token(_) => "holders of the token".to_owned(),
        Access::Proxy(proxy) => {
            let networks: Vec<String> = proxy.networks.iter().map(ToString::to_string).collect();
            let header = format::one_line(&proxy.header, 60);
            format!("users named by {} in {header}", networks.join(", "))
        }
    };
    let role = match &settings.access {
        Access::Proxy(proxy) if !proxy.operators.is_empty() => {
            let operators = proxy.operators.iter().map(|one| format::one_line(one, 60));
            let operators: Vec<String> = operators.collect();
            let role = settings.role.name();
            format!("{role}; operators: {}", operators.join(", "))
        }
        _ => settings.role.name().to_owned(),
    };
    let redacted: Vec<String> = settings
        .redacted
        .iter()
        .map(|key| format::one_line(key, 60))
        .collect();
    let mut facts = vec![
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Role", role),
        ("Access", access),
        ("Redacted arguments", redacted.join(", ")),
        ("Redacted words", settings.redacted_words.join(", ")),
        (
            "Connections",
            format!("{} at most", app.pool.status().max_size),
        ),
        (
            "Statements",
            "2 s for reads, 10 s for counts, 30 s for actions".to_owned(),
        ),
    ];
    facts.extend(settings.thresholds.descriptions());
    facts
}

fn database_settings(figures: &Figures, installed: &store::Installation) -> Vec<Setting> {
    let server = &figures.snapshot.server;
    let role = if server.is_replica {
        "a read-only replica"
    } else {
        "the primary"
    };
    let sees = if server.sees_sessions {
        "yes"
    } else {
        "no: GRANT pg_read_all_stats TO its role"
    };
    vec![
        ("Database", format::one_line(&server.database, 80)),
        ("Postgres", format::one_line(&server.version, 80)),
        ("Server role", role.to_owned()),
        ("Sees other sessions", sees.to_owned()),
        (
            "Failed attempts are kept for",
            format::age(installed.keep_attempts),
        ),
        (
            "Received ids are kept for",
            format::age(installed.keep_inbox),
        ),
    ]
}

fn segment_settings(log: &store::SegmentLog, behind: i64) -> Vec<Setting> {
    let segments = |number: i64| format::pluralize(number, "segment", "segments");
    let ready = format!("{}, {} of them sealed", segments(log.ready), log.sealed);
    let state = match behind {
        ..3 => "none: the oldest segment is truncated in time",
        _ => "yes: the oldest segment cannot be truncated; run posthaste doctor",
    };
    vec![
        ("Ready", ready),
        ("Overflow", segments(log.overflow)),
        ("Scheduled", segments(log.scheduled)),
        ("Blocked", state.to_owned()),
        ("Size", format::bytes(log.bytes)),
        ("Size of given-up jobs", format::bytes(log.dead_bytes)),
    ]
}
