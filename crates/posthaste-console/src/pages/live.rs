//! Live updates of open pages by server-sent events, from the shared read of the database.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::collector::{FiguresResult, MIN_READ_INTERVAL};
use crate::fault::Fault;
use crate::figures::Figures;
use crate::format;
use crate::guard::{Login, Visit};
use crate::store::StoreError;

/// The longest duration of a stream, which also ends with its login. The page then opens a new one.
const MAX_STREAM_TIME: Duration = Duration::from_secs(1_800);

/// The state that a page has received.
struct PageState {
    app: Arc<App>,
    login: Option<Login>,
    since: Instant,
    cells: BTreeMap<String, (String, &'static str)>,
    verdicts: String,
    fault: Option<String>,
    /// The time of the figures that the page shows.
    as_of: Option<Timestamp>,
    waiting: VecDeque<Event>,
    is_first: bool,
    _one_of_many: OwnedSemaphorePermit,
}

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    visit: Visit,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Fault> {
    let place = Arc::clone(&app.streams).try_acquire_owned().map_err(|_| {
        let what = "too many pages are open for live updates";
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, what, "Close some.")
    })?;
    let state = PageState {
        app,
        login: visit.login,
        since: Instant::now(),
        cells: BTreeMap::new(),
        verdicts: String::new(),
        fault: None,
        as_of: None,
        waiting: VecDeque::new(),
        is_first: true,
        _one_of_many: place,
    };
    let events = futures_util::stream::unfold(state, |state| async move {
        let (event, state) = state.next().await?;
        Some((Ok(event), state))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

impl PageState {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some((event, self));
            }
            if !self.is_first {
                tokio::time::sleep(MIN_READ_INTERVAL).await;
            }
            let is_over = |login| self.app.token_auth.has_ended(login);
            if self.since.elapsed() > MAX_STREAM_TIME || self.login.as_ref().is_some_and(is_over) {
                return None;
            }
            self.is_first = false;
            let seen = self.app.collector.figures().await;
            self.push_changes(&seen);
        }
    }

    /// Queues events for values that differ from those that the page shows.
    fn push_changes(&mut self, seen: &FiguresResult) {
        match seen {
            Ok(figures) => {
                if self.fault.take().is_some() {
                    self.push_event("fault", String::new());
                    // The fault was shown in their place.
                    self.verdicts.clear();
                }
                self.as_of = Some(figures.snapshot.server.at);
                self.push_changed_cells(figures);
                let verdicts = verdicts_json(figures);
                if verdicts != self.verdicts {
                    self.verdicts.clone_from(&verdicts);
                    self.push_event("verdicts", verdicts);
                }
            }
            Err(error) => {
                let error = error_fragment(error, self.as_of);
                if self.fault.as_ref() != Some(&error) {
                    let text = serde_json::Value::from(error.as_str()).to_string();
                    self.fault = Some(error);
                    self.push_event("fault", text);
                }
            }
        }
    }

    fn push_changed_cells(&mut self, figures: &Figures) {
        let cells = figures.cells().into_iter();
        let cells: BTreeMap<_, _> = cells
            .map(|cell| (cell.key, (cell.text, cell.class)))
            .collect();
        let changed = cells
            .iter()
            .filter(|(key, cell)| self.cells.get(*key) != Some(cell));
        let changed: Vec<_> = changed
            .map(|(key, (text, class))| serde_json::json!([key, text, class]))
            .collect();
        let is_same = changed.is_empty();
        let others = !self.cells.is_empty() && !cells.keys().eq(self.cells.keys());
        self.cells = cells;
        if others {
            self.push_event("lines", "1".to_owned());
        }
        if !is_same {
            self.push_event("cells", serde_json::Value::from(changed).to_string());
        }
    }

    fn push_event(&mut self, event: &str, data: String) {
        let data = if data.is_empty() {
            "\"\"".to_owned()
        } else {
            data
        };
        self.waiting
            .push_back(Event::default().event(event).data(data));
    }
}

/// Returns a fault as a sentence, with the time of the figures that the page still shows.
fn error_fragment(error: &StoreError, as_of: Option<Timestamp>) -> String {
    match as_of {
        Some(at) => format!(
            "No figures since {} UTC: {error}. The figures below are from then.",
            format::time(at, at)
        ),
        None => format!("No figures: {error}."),
    }
}

fn verdicts_json(figures: &Figures) -> String {
    let all = figures
        .verdicts
        .iter()
        .map(|one| serde_json::json!([one.level.as_str(), one.id, one.what, one.then, one.link]));
    serde_json::Value::from(all.collect::<Vec<_>>()).to_string()
}
