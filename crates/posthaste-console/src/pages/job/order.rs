//! Other jobs of the same ordering key. No IO.

use jiff::Timestamp;

use crate::format;
use crate::store::Waiting;

/// Waiting jobs of the key that are shown, and that are counted, at most.
const MAX_SHOWN_SUCCESSORS: usize = 10;
pub(super) const MAX_COUNTED_SUCCESSORS: i64 = 200;

/// The other jobs of its ordering key.
pub(super) struct KeyOrder {
    pub(super) before: Option<String>,
    pub(super) next: Vec<Successor>,
    pub(super) more: Option<String>,
}

/// A job that waits for it.
pub(super) struct Successor {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) queue: String,
    pub(super) waits: String,
}

impl KeyOrder {
    /// Creates it from the jobs that wait for their turn, the next first. The job itself is among
    /// them, unless it has its turn.
    pub(super) fn from_waiting(id: i64, waiting: &[Waiting], now: Timestamp) -> Self {
        let number = |jobs: usize| i64::try_from(jobs).unwrap_or(i64::MAX);
        let is_all = number(waiting.len()) < MAX_COUNTED_SUCCESSORS;
        let at = waiting.iter().position(|one| one.id == id);
        let first = at.map_or(0, |at| at + 1);
        let next = &waiting[first..];
        let left = next.len().saturating_sub(MAX_SHOWN_SUCCESSORS);
        let more = match (left, is_all) {
            (0, true) => None,
            (_, true) => Some(format!("{} more", format::count(number(left)))),
            (_, false) => Some(format!("{} more, or others", format::count(number(left)))),
        };
        Self {
            before: at
                .filter(|at| *at > 0)
                .map(|at| format::pluralize(number(at), "job waits", "jobs wait") + " before it"),
            next: next
                .iter()
                .take(MAX_SHOWN_SUCCESSORS)
                .map(|one| Successor {
                    id: one.id,
                    name: format::one_line(&one.name, 80),
                    queue: format::one_line(&one.queue, 60),
                    waits: format::age(format::seconds_between(one.enqueued_at, now).max(0.0)),
                })
                .collect(),
            more,
        }
    }
}
