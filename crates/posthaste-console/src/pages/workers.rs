//! Workers: which are alive, their queues and running jobs, and which have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::fault::Fault;
use crate::figures::{Figures, WorkerLine};
use crate::format;
use crate::guard::Visit;
use crate::store::{self, StoreError};

/// A worker that has ended, as a row of the table.
struct EndedWorkerRow {
    id: i64,
    name: String,
    started: String,
    ended: String,
    how: &'static str,
    class: &'static str,
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    figures: Arc<Figures>,
    /// Running jobs of each worker; `None` if they were not counted in time.
    running: Option<BTreeMap<i64, i64>>,
    ended: Vec<EndedWorkerRow>,
    took: String,
}

impl WorkersPage {
    fn running_jobs_text(&self, worker: &WorkerLine) -> String {
        match &self.running {
            Some(running) => format::count(running.get(&worker.id).copied().unwrap_or(0)),
            None => "–".to_owned(),
        }
    }
}

pub(crate) async fn show(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let started = Instant::now();
    let running = match store::running_by_worker(&app.pool).await {
        Ok(running) => Some(running),
        Err(StoreError::Late(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let ended = store::read_ended_workers(&app.pool).await?;
    let now = figures.snapshot.server.at;
    let workers = WorkersPage {
        frame: Frame::new(&app, &visit, &figures, "Workers", "/workers"),
        running,
        ended: ended.iter().map(|one| ended_worker_row(one, now)).collect(),
        took: format::precise_duration(started.elapsed().as_secs_f64()),
        figures,
    };
    Ok(page(StatusCode::OK, &workers))
}

fn ended_worker_row(one: &store::EndedWorker, now: Timestamp) -> EndedWorkerRow {
    let (how, class) = match one.is_clean {
        true => ("stopped", "idle"),
        false => ("died", "dead"),
    };
    EndedWorkerRow {
        id: one.id,
        name: format::one_line(&one.name, 80),
        started: format::time(one.started_at, now),
        ended: format::time(one.stopped_at, now),
        how,
        class,
    }
}
