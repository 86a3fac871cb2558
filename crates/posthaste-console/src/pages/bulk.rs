//! Acting on all jobs that a filter names: first a page that says how many they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste::State as JobState;

use super::frame::Frame;
use super::{check_may_act, notice, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::filter::Filter;
use crate::form::{Fields, Form, Query};
use crate::guard::Visit;
use crate::store::{self, Session, StoreError};
use crate::window::KEPT;
use crate::words;

/// Jobs of one transaction.
const BATCH: u32 = 1_000;
/// Jobs of one form.
const MOST: u32 = 100_000;
/// Kept jobs that are looked at to count those with an error.
const COUNTED: i64 = 200_000;
/// No batch begins after this.
const BOUND: Duration = Duration::from_secs(20);

const WAITING: [JobState; 3] = [
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Quarantined,
];

/// What is done to them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Retry,
    Redrive,
}

impl Action {
    fn read(fields: &Fields) -> Result<Self, Fault> {
        match fields.text("do")? {
            "retry" => Ok(Self::Retry),
            "redrive" => Ok(Self::Redrive),
            _ => Err(Fault::bad("a filter is followed by retry or redrive")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Redrive => "redrive",
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Retry => "They run as soon as a worker is free, and keep their counted attempts.",
            Self::Redrive => {
                "They are sent to work again, the first that were given up first. Each keeps its \
                 id and delivery id, and has all its attempts before it. One whose unique key \
                 another job now holds stays where it is."
            }
        }
    }

    /// States of the jobs that it is for.
    fn states(self) -> &'static [JobState] {
        match self {
            Self::Retry => &WAITING,
            Self::Redrive => &KEPT,
        }
    }
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Bulk {
    frame: Frame,
    action: Action,
    filter: String,
    /// How many jobs there are, in words.
    count: String,
    is_none: bool,
    at_most: u32,
    most: u32,
    command: String,
    done_back: &'static str,
}

pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let action = Action::read(&fields)?;
    let filter = meant(&fields, action)?;
    let figures = app.collector.seen().await?;
    let number = count(&app, &figures, action, &filter).await?;
    let at_most = fields.number("at_most", (1, MOST))?.unwrap_or(BATCH);
    let title = match action {
        Action::Retry => "Retry by filter",
        Action::Redrive => "Redrive by filter",
    };
    let current = if action == Action::Retry {
        "/jobs"
    } else {
        "/dead"
    };
    let bulk = Bulk {
        frame: Frame::new(&app, &visit, &figures, title, current),
        action,
        count: number.words(),
        is_none: number == Number::Exactly(0),
        at_most,
        most: MOST,
        command: format!(
            "posthaste jobs {}{} --limit {at_most}",
            action.name(),
            match filter.options() {
                none if none.is_empty() => " --all".to_owned(),
                options => options,
            }
        ),
        filter: filter.to_string(),
        done_back: current,
    };
    Ok(page(StatusCode::OK, &bulk))
}

/// The filter, if it says something that the database can act by.
fn meant(fields: &Fields, action: Action) -> Result<Filter, Fault> {
    let filter = Filter::parse(fields.get("filter").unwrap_or_default()).map_err(Fault::bad)?;
    if filter.text.is_some() || filter.id.is_some() {
        let what = "nobody acts by a text in arguments, or by a number, on all at once";
        return Err(Fault::new(
            StatusCode::BAD_REQUEST,
            what,
            "Select the jobs in the list.",
        ));
    }
    if filter
        .state
        .is_some_and(|state| !action.states().contains(&state))
    {
        let names: Vec<&str> = action
            .states()
            .iter()
            .map(|state| words::state(*state))
            .collect();
        let what = format!(
            "{} is for jobs that are {}",
            action.name(),
            names.join(", ")
        );
        return Err(Fault::bad(what));
    }
    Ok(filter)
}

/// How many jobs a filter names.
#[derive(PartialEq, Eq)]
enum Number {
    Exactly(i64),
    AtLeast(i64),
    /// It would cost more to count them than to act.
    Unknown,
}

impl Number {
    fn words(&self) -> String {
        match self {
            Self::Exactly(jobs) => words::counted(*jobs, "job", "jobs"),
            Self::AtLeast(jobs) => format!("{} or more", words::counted(*jobs, "job", "jobs")),
            Self::Unknown => "Some jobs".to_owned(),
        }
    }
}

async fn count(
    app: &App,
    figures: &Figures,
    action: Action,
    filter: &Filter,
) -> Result<Number, StoreError> {
    if filter.error.is_some() {
        return match action {
            Action::Retry => Ok(Number::Unknown),
            Action::Redrive => {
                let (jobs, is_bounded) = store::kept_count(&app.pool, filter, COUNTED).await?;
                Ok(if is_bounded {
                    Number::AtLeast(jobs)
                } else {
                    Number::Exactly(jobs)
                })
            }
        };
    }
    let sums = figures.snapshot.sums_of(filter);
    let states = action.states().iter();
    let meant = states.filter(|state| filter.state.is_none_or(|one| one == **state));
    Ok(Number::Exactly(meant.map(|state| sums.of(*state)).sum()))
}

pub(crate) async fn act(
    State(app): State<Arc<App>>,
    visit: Visit,
    Form(fields): Form,
) -> Result<Response, Fault> {
    check_may_act(&app).await?;
    let action = Action::read(&fields)?;
    let filter = meant(&fields, action)?;
    let at_most = fields.number("at_most", (1, MOST))?.unwrap_or(BATCH);
    let done = in_batches(&app, action, &filter, at_most).await;
    let on = format!("filter {filter}, at most {at_most}");
    let jobs = audit::log(&visit, action.name(), &on, done)?;
    app.collector.refresh().await;
    Ok(notice::done(fields.back(), action.name(), jobs))
}

/// Batch by batch, each in a transaction of its own; what is done when one fails stays done.
async fn in_batches(
    app: &App,
    action: Action,
    filter: &Filter,
    at_most: u32,
) -> Result<usize, StoreError> {
    let started = Instant::now();
    let mut done = 0_usize;
    loop {
        let left = at_most.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
        let batch = left.min(BATCH);
        if batch == 0 || started.elapsed() > BOUND {
            return Ok(done);
        }
        let moved = match batch_of(app, action, filter, batch).await {
            Ok(moved) => moved,
            Err(error) if done > 0 => {
                tracing::warn!(error = %error, done, "an action by filter ended early");
                return Ok(done);
            }
            Err(error) => return Err(error),
        };
        done += moved;
        if moved < usize::try_from(batch).unwrap_or(usize::MAX) {
            return Ok(done);
        }
    }
}

async fn batch_of(
    app: &App,
    action: Action,
    filter: &Filter,
    batch: u32,
) -> Result<usize, StoreError> {
    let session = Session::act(&app.pool).await?;
    let chosen = filter.chosen().limit(batch);
    let moved = match action {
        Action::Retry => session.jobs()?.retry_where(&chosen).await?.len(),
        Action::Redrive => session.jobs()?.redrive_where(&chosen).await?.len(),
    };
    session.end().await?;
    Ok(moved)
}
