//! Queues: how each goes, and what is set for it.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste::Rate;

use super::frame::Frame;
use super::{check_may_act, notice, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::form::{Fields, Form, Query};
use crate::guard::Visit;
use crate::store::{Session, StoreError};
use crate::words;

/// Times for which a rate is set.
const PER: [(u32, &str); 4] = [
    (1, "a second"),
    (60, "a minute"),
    (3_600, "an hour"),
    (86_400, "a day"),
];

#[derive(Template)]
#[template(path = "queues.html")]
struct Queues {
    frame: Frame,
    figures: Arc<Figures>,
    per: [(u32, &'static str); 4],
    units: [(u32, &'static str); 2],
}

impl Queues {
    /// For how long done jobs are kept, in the unit that divides it, else in hours.
    fn keep(&self, seconds: &Option<f64>) -> (u32, String) {
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

    fn is_per(&self, seconds: &u32, per: &f64) -> bool {
        f64::from(*seconds) == *per
    }

    /// What a period is called that is none of those to choose from.
    fn other(&self, per: &f64) -> Option<String> {
        let is_usual = self.per.iter().any(|(usual, _)| self.is_per(usual, per));
        (*per > 0.0 && !is_usual).then(|| format!("every {}", words::span(*per)))
    }
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let figures = app.collector.seen().await?;
    let queues = Queues {
        frame: Frame::new(&app, &visit, &figures, "Queues", "/queues").with_notice(&fields),
        figures,
        per: PER,
        units: UNITS,
    };
    Ok(page(StatusCode::OK, &queues))
}

pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &fields.name("queue")?;
    audit::log(&visit, "pause", queue, paused(&app, queue, true).await)?;
    Ok(done(&app, &fields, "pause").await)
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &fields.name("queue")?;
    audit::log(&visit, "resume", queue, paused(&app, queue, false).await)?;
    Ok(done(&app, &fields, "resume").await)
}

pub(super) async fn paused(app: &App, queue: &str, is_paused: bool) -> Result<usize, StoreError> {
    let session = Session::act(&app.pool).await?;
    match is_paused {
        true => session.jobs()?.pause(queue).await?,
        false => session.jobs()?.resume(queue).await?,
    };
    session.end().await.map(|()| 0)
}

pub(crate) async fn limit(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &fields.name("queue")?;
    let rate = rate(&fields)?;
    let (action, on) = match &rate {
        Some(rate) => ("limit", format!("{queue}: {rate:?}")),
        None => ("unlimit", queue.to_owned()),
    };
    audit::log(&visit, action, &on, limited(&app, queue, rate).await)?;
    Ok(done(&app, &fields, action).await)
}

/// The rate that a form asks for; none where it has no number of jobs.
fn rate(fields: &Fields) -> Result<Option<Rate>, Fault> {
    let most = i32::MAX.unsigned_abs();
    let Some(jobs) = fields.number("rate", (1, most))? else {
        return Ok(None);
    };
    let per = fields.number("per", (1, 360 * 86_400))?.unwrap_or(1);
    let rate = Rate::new(jobs, Duration::from_secs(per.into()));
    Ok(Some(match fields.number("burst", (1, most))? {
        Some(burst) => rate.burst(burst),
        None => rate,
    }))
}

async fn limited(app: &App, queue: &str, rate: Option<Rate>) -> Result<usize, StoreError> {
    let session = Session::act(&app.pool).await?;
    session.jobs()?.limit(queue, rate).await?;
    session.end().await.map(|()| 0)
}

/// Times for which done jobs are kept.
const UNITS: [(u32, &str); 2] = [(3_600, "hours"), (86_400, "days")];
/// The longest, in hours.
const LONGEST: u32 = 3_660 * 24;

pub(crate) async fn keep(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app, &visit).await?;
    let queue = &fields.name("queue")?;
    let number = fields.number("keep", (1, LONGEST))?;
    let unit = fields.number("unit", (3_600, 86_400))?.unwrap_or(3_600);
    let seconds = number.map(|number| u64::from(number) * u64::from(unit));
    let seconds = seconds.map(|seconds| seconds.min(u64::from(LONGEST) * 3_600));
    let (action, on) = match seconds {
        Some(seconds) => ("keep", format!("{queue}: {seconds} s")),
        None => ("forget", queue.to_owned()),
    };
    let keep = seconds.map(Duration::from_secs);
    audit::log(&visit, action, &on, kept(&app, queue, keep).await)?;
    Ok(done(&app, &fields, action).await)
}

async fn kept(app: &App, queue: &str, keep: Option<Duration>) -> Result<usize, StoreError> {
    let session = Session::act(&app.pool).await?;
    session.jobs()?.keep(queue, keep).await?;
    session.end().await.map(|()| 0)
}

async fn done(app: &App, fields: &Fields, did: &str) -> Response {
    app.collector.refresh().await;
    notice::done(fields.back(), did, 0)
}
