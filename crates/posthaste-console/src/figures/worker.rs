//! Workers as rows of tables.

use posthaste_observe::{Snapshot, Thresholds, Worker};

use super::Cell;
use crate::format;

/// A worker, as a row of a table.
#[derive(Clone, Debug)]
pub(crate) struct WorkerLine {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) queues: String,
    pub(crate) started: String,
    pub(crate) seen: Cell,
    pub(crate) state: Cell,
}

pub(super) fn worker_line(
    snapshot: &Snapshot,
    worker: &Worker,
    thresholds: &Thresholds,
) -> WorkerLine {
    let is_silent = !worker.is_alive(thresholds);
    let key = |what: &str| format!("worker.{}.{what}", worker.id);
    let (word, class) = match (is_silent, worker.leads) {
        (true, _) => ("silent", "failing"),
        (false, true) => ("leader", "up"),
        (false, false) => ("active", "up"),
    };
    let seen = format!("{} ago", format::age(worker.silent.max(0.0)));
    WorkerLine {
        id: worker.id,
        name: worker.name.clone(),
        queues: match worker.queues.is_empty() {
            true => "any".to_owned(),
            false => worker.queues.join(", "),
        },
        started: format::time(worker.started_at, snapshot.server.at),
        seen: Cell::new(key("seen"), seen, if is_silent { "late" } else { "" }),
        state: Cell::new(key("state"), word.to_owned(), class),
    }
}
