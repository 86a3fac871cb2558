//! One queue: how it stands, and how it went.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::chart::{Charts, Over};
use crate::fault::Fault;
use crate::figures::{Figures, QueueLine};
use crate::form::{Fields, Query};
use crate::guard::Visit;
use crate::{address, store, words};

#[derive(Template)]
#[template(path = "queue.html")]
struct Queue {
    frame: Frame,
    charts: Charts,
    name: String,
    jobs: String,
    line: QueueLine,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.seen().await?;
    let name = fields.name("queue")?;
    let line = figures.queues.iter().find(|line| line.name == name);
    let line = line.cloned().ok_or_else(|| {
        let what = format!("queue {} does not exist", words::plain(&name, 60));
        let then = "A queue appears once a job was enqueued in it.";
        Fault::new(StatusCode::NOT_FOUND, what, then)
    })?;
    let shown = words::plain(&name, 60);
    let queue = Queue {
        frame: Frame::new(&app, &visit, &figures, format!("Queue {shown}"), "/queues"),
        charts: charts(&app, &fields, &figures, Some(&name)).await?,
        jobs: address::queue(&name),
        name: shown,
        line,
    };
    Ok(page(StatusCode::OK, &queue))
}

/// Charts of a queue, or of the whole database, over the time that the address asks for.
pub(super) async fn charts(
    app: &App,
    fields: &Fields,
    figures: &Figures,
    queue: Option<&str>,
) -> Result<Charts, Fault> {
    let over = Over::read(fields.get("over"));
    let now = figures.snapshot.server.at;
    let samples = store::samples(&app.pool, queue, over, now).await?;
    Ok(Charts::new(queue, &samples, over, now))
}
