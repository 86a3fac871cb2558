//! The page of a queue: its figures, its history, and its settings.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::frame::Frame;
use super::page;
use crate::app::App;
use crate::chart::{Charts, Period};
use crate::fault::Fault;
use crate::figures::{Figures, QueueLine};
use crate::filter::Filter;
use crate::form::{Fields, Query};
use crate::guard::Visit;
use crate::{address, format, store};

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage {
    frame: Frame,
    charts: Charts,
    name: String,
    /// The name, quoted for a shell.
    shown: String,
    jobs: String,
    dead: String,
    line: QueueLine,
    per: [(u32, &'static str); 4],
    units: [(u32, &'static str); 2],
}

/// Periods of rate limits, in seconds.
const RATE_PERIODS: [(u32, &str); 4] = [
    (1, "a second"),
    (60, "a minute"),
    (3_600, "an hour"),
    (86_400, "a day"),
];

/// Units of the retention of completed jobs, in seconds.
const RETENTION_UNITS: [(u32, &str); 2] = [(3_600, "hours"), (86_400, "days")];
impl QueuePage {
    /// Returns the retention of completed jobs, in days if it is a number of whole days, or else in
    /// hours.
    fn retention(&self, seconds: &Option<f64>) -> (u32, String) {
        let Some(seconds) = *seconds else {
            return (3_600, String::new());
        };
        let unit = if seconds % 86_400.0 == 0.0 {
            86_400
        } else {
            3_600
        };
        (unit, format!("{:.0}", (seconds / f64::from(unit)).ceil()))
    }

    fn is_rate_period(&self, seconds: &u32, per: &f64) -> bool {
        f64::from(*seconds) == *per
    }

    /// Returns a name for a period that is not one of the choices.
    fn other_rate_period(&self, per: &f64) -> Option<String> {
        let is_usual = self
            .per
            .iter()
            .any(|(usual, _)| self.is_rate_period(usual, per));
        (*per > 0.0 && !is_usual).then(|| format!("every {}", format::precise_duration(*per)))
    }
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.figures().await?;
    let name = fields.name("queue")?;
    let line = figures.queues.iter().find(|line| line.name == name);
    let line = line.cloned().ok_or_else(|| unknown_queue(&name))?;
    let shown = format::one_line(&name, 60);
    let queue = QueuePage {
        frame: Frame::new(&app, &visit, &figures, format!("Queue {shown}"), "/queues"),
        charts: queue_charts(&app, &fields, &figures, Some(&name)).await?,
        jobs: address::queue_jobs(&name),
        dead: address::filtered_jobs("/dead", &queue_filter(&name)),
        shown: crate::filter::quote_for_shell(&shown),
        name: shown,
        line,
        per: RATE_PERIODS,
        units: RETENTION_UNITS,
    };
    Ok(page(StatusCode::OK, &queue))
}

fn queue_filter(name: &str) -> Filter {
    Filter {
        queue: Some(name.to_owned()),
        ..Filter::default()
    }
}

/// Returns the fault of an unknown queue.
pub(super) fn unknown_queue(name: &str) -> Fault {
    let what = format!("queue {} does not exist", format::one_line(name, 60));
    let then = "A queue appears once a job was enqueued in it, or once \
                'posthaste queues pause' or 'limit' was run for it.";
    Fault::new(StatusCode::NOT_FOUND, what, then)
}

/// Returns charts of a queue, or of the whole database, over the period in the address.
pub(super) async fn queue_charts(
    app: &App,
    fields: &Fields,
    figures: &Figures,
    queue: Option<&str>,
) -> Result<Charts, Fault> {
    let over = Period::from_name(fields.get("over"));
    let now = figures.snapshot.server.at;
    let samples = store::read_samples(&app.pool, queue, over, now).await?;
    Ok(Charts::new(queue, &samples, over, now))
}
