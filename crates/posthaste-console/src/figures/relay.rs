//! Relays as rows of tables.

use posthaste_observe::{Snapshot, Thresholds, failing_since, relay_name};
use posthaste_relay::{RelayReport, RelayState};

use super::Cell;
use crate::format;

/// A relay, as a row of a table.
#[derive(Clone, Debug)]
pub(crate) struct RelayLine {
    pub(crate) name: String,
    pub(crate) queue: String,
    pub(crate) destination: String,
    /// The last error, while it is failing.
    pub(crate) last_error: Option<String>,
    /// The last error, regardless of its age.
    pub(crate) error: Option<String>,
    pub(crate) is_failing: bool,
    /// When its queue was paused; `None` if it is not.
    pub(crate) paused: Option<String>,
    /// Messages rejected permanently, by reason.
    pub(crate) rejections: Vec<(String, String)>,
    pub(crate) cells: Vec<Cell>,
    /// The cells of the page of destinations: the current state, and the totals since it was
    /// started.
    pub(crate) stands: Vec<Cell>,
    pub(crate) did: Vec<Cell>,
    pub(crate) state: Cell,
}

pub(super) fn relay_line(
    snapshot: &Snapshot,
    relay: &RelayReport,
    thresholds: &Thresholds,
) -> RelayLine {
    let now = snapshot.server.at;
    let key = |what: &str| format!("relay.{}.{}.{what}", relay.queue, relay.worker);
    let waited = snapshot.oldest_waiting(&relay.queue).map(|one| one.seconds);
    let since = failing_since(relay);
    let fails = since.is_some();
    let lag_class = match waited {
        None => "zero",
        Some(_) if fails => "late",
        Some(_) => "",
    };
    let is_missed = waited.is_some() && snapshot.live_worker_count(&relay.queue, thresholds) == 0;
    let (word, class) = match relay.state {
        RelayState::Up if fails => ("failing", "failing"),
        RelayState::Up => ("up", "up"),
        RelayState::Standby => ("standby", "idle"),
        RelayState::Stopped if is_missed => ("stopped", "failing"),
        RelayState::Stopped => ("stopped", "paused"),
        other => (other.name(), "failing"),
    };
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let none = || "–".to_owned();
    let lasts = since.map(|since| format::seconds_between(since, now).max(0.0));
    let age = format::seconds_between(relay.updated_at, now).max(0.0);
    let sums = snapshot.sums_by_queue();
    let sums = sums.get(relay.queue.as_str()).copied().unwrap_or_default();
    let status = &relay.status;
    let lag = Cell::new(key("lag"), waited.map_or_else(none, format::age), lag_class);
    let sent = Cell::number(key("sent"), number(status.accepted));
    let rejected = Cell::number(key("rejected"), number(status.rejected));
    RelayLine {
        name: relay_name(relay).to_owned(),
        queue: relay.queue.clone(),
        destination: relay.destination.clone(),
        last_error: status.last_error.clone().filter(|_| fails),
        error: status.last_error.clone(),
        is_failing: fails,
        paused: snapshot
            .paused_at(&relay.queue)
            .map(|at| format::time(at, now)),
        rejections: status
            .rejections
            .iter()
            .map(|(reason, times)| (reason.clone(), format::count(number(*times))))
            .collect(),
        cells: vec![lag.clone(), sent.clone(), rejected.clone().wide()],
        stands: vec![
            lag,
            Cell::number(key("waiting"), sums.available + sums.retrying),
            Cell::new(
                key("fails"),
                lasts.map_or_else(none, format::age),
                if fails { "late" } else { "zero" },
            ),
        ],
        did: vec![
            sent,
            rejected,
            Cell::number(key("retried"), number(status.retried)).wide(),
            Cell::number(key("unavailable"), number(status.unavailable)).wide(),
            Cell::new(key("reported"), format!("{} ago", format::age(age)), ""),
        ],
        state: Cell::new(key("state"), word.to_owned(), class),
    }
}
