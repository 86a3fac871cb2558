//! Acting on all jobs that a filter names: first a page that says how many they are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use posthaste::{JobId, State as JobState};

use super::frame::Frame;
use super::jobs::LISTED;
use super::{check_may_act, notice, page};
use crate::app::App;
use crate::audit;
use crate::fault::Fault;
use crate::figures::Figures;
use crate::filter::Filter;
use crate::form::{Fields, Form, Query};
use crate::guard::Visit;
use crate::look::Look;
use crate::snapshot::Sums;
use crate::store::{self, Session, StoreError};
use crate::window::{KEPT, Place};
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
    Cancel,
    Redrive,
    Delete,
}

impl Action {
    fn read(fields: &Fields) -> Result<Self, Fault> {
        let all = [Self::Retry, Self::Cancel, Self::Redrive, Self::Delete];
        let wanted = fields.text("do")?;
        let action = all.into_iter().find(|one| one.name() == wanted);
        let what = "a filter is followed by retry, cancel, redrive or delete";
        action.ok_or_else(|| Fault::bad(what))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Redrive => "redrive",
            Self::Delete => "delete",
        }
    }

    /// Its button, and the title of its page.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Retry => ("Retry them", "Retry by filter"),
            Self::Cancel => ("Cancel them", "Cancel by filter"),
            Self::Redrive => ("Redrive them", "Redrive by filter"),
            Self::Delete => ("Delete them for good", "Delete by filter"),
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Retry => "They run as soon as a worker is free, and keep their counted attempts.",
            Self::Cancel => {
                "Those that wait never run. Those that run are told to end, and are ended five \
                 seconds later. They are kept as cancelled, and can be redriven."
            }
            Self::Redrive => {
                "They are sent to work again, the first that were given up first. Each keeps its \
                 id and delivery id, and has all its attempts before it. One whose unique key \
                 another job now holds stays where it is."
            }
            Self::Delete => {
                "They are gone for good, with arguments and errors, the first that were given up \
                 first. Nobody can redrive them."
            }
        }
    }

    /// States of the jobs that it is for.
    fn states(self) -> &'static [JobState] {
        match self {
            Self::Retry => &WAITING,
            Self::Cancel => &LISTED,
            Self::Redrive | Self::Delete => &KEPT,
        }
    }

    /// Of jobs that were given up.
    fn is_of_kept(self) -> bool {
        matches!(self, Self::Redrive | Self::Delete)
    }

    /// The command that does the same, if there is one.
    fn command(self, filter: &Filter, at_most: u32) -> Option<String> {
        if !matches!(self, Self::Retry | Self::Redrive) {
            return None;
        }
        let options = match filter.options() {
            none if none.is_empty() => " --all".to_owned(),
            options => options,
        };
        let name = self.name();
        Some(format!("posthaste jobs {name}{options} --limit {at_most}"))
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
    /// The command that does the same, else the conditions of a statement.
    command: Option<String>,
    conditions: String,
    button: &'static str,
    key: &'static str,
    done_back: &'static str,
}

pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    visit: Visit,
    Query(fields): Query,
) -> Result<Response, Fault> {
    let action = Action::read(&fields)?;
    let figures = app.collector.seen().await?;
    let filter = meant(&fields, action, &figures)?;
    let number = count(&app, &figures, action, &filter).await?;
    let at_most = fields.number("at_most", (1, MOST))?.unwrap_or(BATCH);
    let (button, title) = action.words();
    let current = if action.is_of_kept() {
        "/dead"
    } else {
        "/jobs"
    };
    let bulk = Bulk {
        frame: Frame::new(&app, &visit, &figures, title, current),
        action,
        count: number.words(),
        is_none: number == Number::Exactly(0),
        at_most,
        most: MOST,
        command: action.command(&filter, at_most),
        conditions: filter.conditions(action.is_of_kept()),
        button,
        key: match action {
            Action::Retry | Action::Redrive => "r",
            Action::Cancel => "c",
            Action::Delete => "",
        },
        filter: filter.to_string(),
        done_back: current,
    };
    Ok(page(StatusCode::OK, &bulk))
}

/// The filter, if it says something that the database can act by.
fn meant(fields: &Fields, action: Action, figures: &Figures) -> Result<Filter, Fault> {
    let typed = fields.get("filter").unwrap_or_default();
    let filter = Filter::parse(typed, figures.snapshot.server.at).map_err(Fault::bad)?;
    if filter.text.is_some() || filter.id.is_some() {
        let what = "nobody acts by a text in arguments, or by a number, on all at once";
        return Err(Fault::new(
            StatusCode::BAD_REQUEST,
            what,
            "Select the jobs in the list.",
        ));
    }
    if filter.since.is_some() && matches!(action, Action::Retry | Action::Redrive) {
        let what = format!("{} takes no since", action.name());
        return Err(Fault::bad(what));
    }
    if action == Action::Delete && filter.state.is_none() {
        return Err(Fault::bad("to delete, say which: state:dead"));
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
    if filter.error.is_some() || filter.since.is_some() {
        return match action {
            Action::Retry | Action::Cancel => Ok(Number::Unknown),
            Action::Redrive | Action::Delete => {
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
    check_may_act(&app, &visit).await?;
    let action = Action::read(&fields)?;
    let figures = app.collector.seen().await?;
    let filter = meant(&fields, action, &figures)?;
    let at_most = fields.number("at_most", (1, MOST))?.unwrap_or(BATCH);
    let done = in_batches(&app, &figures, action, &filter, at_most).await;
    let on = format!("filter {filter}, at most {at_most}");
    let jobs = audit::log(&visit, action.name(), &on, done)?;
    app.collector.refresh().await;
    Ok(notice::done(fields.back(), action.name(), jobs))
}

/// Batch by batch, each in a transaction of its own; what is done when one fails stays done.
async fn in_batches(
    app: &App,
    figures: &Figures,
    action: Action,
    filter: &Filter,
    at_most: u32,
) -> Result<usize, StoreError> {
    let started = Instant::now();
    let mut done = 0_usize;
    let mut walk = Walk::new(app, figures, filter);
    loop {
        let left = at_most.saturating_sub(u32::try_from(done).unwrap_or(u32::MAX));
        let batch = left.min(BATCH);
        if batch == 0 || started.elapsed() > BOUND {
            return Ok(done);
        }
        let moved = match action {
            Action::Cancel => walk.cancel(batch).await,
            _ => batch_of(app, action, filter, batch).await,
        };
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) if done > 0 => {
                tracing::warn!(%error, jobs = done, "an action by filter ended early");
                return Ok(done);
            }
            Err(error) => return Err(error),
        };
        done += moved;
        let is_over = match action {
            Action::Cancel => walk.is_over,
            _ => moved < usize::try_from(batch).unwrap_or(usize::MAX),
        };
        if is_over {
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
        Action::Delete => store::delete_kept(&session, filter, batch).await?,
        Action::Redrive | Action::Cancel => session.jobs()?.redrive_where(&chosen).await?.len(),
    };
    session.end().await?;
    Ok(moved)
}

/// Goes through the jobs as the list does, window by window, and cancels what it finds.
struct Walk<'a> {
    app: &'a App,
    filter: &'a Filter,
    sums: Sums,
    at: Option<Place>,
    is_over: bool,
}

impl<'a> Walk<'a> {
    fn new(app: &'a App, figures: &Figures, filter: &'a Filter) -> Self {
        Self {
            app,
            filter,
            sums: figures.snapshot.sums_of(filter),
            at: None,
            is_over: false,
        }
    }

    async fn cancel(&mut self, batch: u32) -> Result<usize, StoreError> {
        let look = Look {
            filter: self.filter,
            sums: &self.sums,
            secrets: &self.app.secrets,
            at: self.at.take(),
            is_by_due: false,
            limit: usize::try_from(batch).unwrap_or(usize::MAX),
        };
        let found = look.take(&self.app.pool).await?;
        self.is_over = found.next.is_none();
        self.at = found.next;
        let ids: Vec<JobId> = found.jobs.iter().map(|job| JobId(job.id)).collect();
        match ids.is_empty() {
            true => Ok(0),
            false => super::act::cancelled(self.app, &ids).await,
        }
    }
}
