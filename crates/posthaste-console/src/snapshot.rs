//! What the database said at one moment. No IO.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use posthaste::{Counter, Counters, HolderKind, State};
use posthaste_relay::RelayReport;

use crate::bulk::Action;
use crate::filter::Filter;

/// Everything that is shown of the whole store.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) server: Server,
    pub(crate) counters: Counters,
    pub(crate) relays: Vec<RelayReport>,
    pub(crate) queues: Vec<QueueSettings>,
    pub(crate) workers: Vec<Worker>,
    /// Who keeps vacuum back, the oldest first.
    pub(crate) holders: Vec<Holder>,
    /// Actions on all jobs of a filter: those at work, and the newest.
    pub(crate) bulk: Vec<Action>,
    /// How long it took to read all this.
    pub(crate) took: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) database: String,
    pub(crate) version: String,
    pub(crate) is_replica: bool,
    pub(crate) at: Timestamp,
    pub(crate) sees_sessions: bool,
    pub(crate) segments_behind: i64,
    pub(crate) dead_lately: i64,
    pub(crate) expired_lately: i64,
    pub(crate) has_leader: bool,
}

/// What is set for a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueSettings {
    pub(crate) name: String,
    pub(crate) paused_at: Option<Timestamp>,
    pub(crate) rate: Option<i32>,
    pub(crate) per: Option<f64>,
    pub(crate) burst: Option<i32>,
    /// For how many seconds done jobs are kept.
    pub(crate) keep: Option<f64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) started_at: Timestamp,
    pub(crate) silent: f64,
    pub(crate) queues: Vec<String>,
    pub(crate) leads: bool,
}

/// Somebody who keeps vacuum back.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) kind: HolderKind,
    pub(crate) name: String,
    pub(crate) detail: String,
    pub(crate) seconds: Option<f64>,
    pub(crate) behind: i64,
}

impl Holder {
    /// Those who have done so for more than a second; a replica's slot stands for both.
    pub(crate) fn of(all: Vec<posthaste::Holder>) -> Vec<Self> {
        let worth = all
            .into_iter()
            .filter(|one| !one.is_by_slot && one.seconds.is_none_or(|seconds| seconds > 1.0));
        let said = worth.filter_map(|one| Some(Self::read(&one, one.transactions?)));
        said.take(SHOWN).collect()
    }

    fn read(one: &posthaste::Holder, behind: i64) -> Self {
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let name = text(&one.name).unwrap_or_default();
        let role = text(&one.role).unwrap_or_else(|| "nobody".to_owned());
        let from = text(&one.address).unwrap_or_else(|| "this machine".to_owned());
        let by = match text(&one.application) {
            Some(application) => format!("{role} from {from} by {application}"),
            None => format!("{role} from {from}"),
        };
        let (name, detail) = match one.kind {
            HolderKind::Prepared => {
                let database = text(&one.database).unwrap_or_default();
                (name, format!("of {role} in database {database}"))
            }
            HolderKind::Slot => (
                name,
                if one.is_read {
                    "read"
                } else {
                    "read by nobody"
                }
                .to_owned(),
            ),
            HolderKind::Replica => {
                let name = text(&one.application).unwrap_or_else(|| "a replica".to_owned());
                (name, format!("from {from}"))
            }
            _ => {
                let state = text(&one.state).unwrap_or_else(|| "unknown".to_owned());
                let pid = one.pid.unwrap_or_default();
                (format!("pid {pid}"), format!("{by}, {state}"))
            }
        };
        Self {
            kind: one.kind,
            name,
            detail,
            seconds: one.seconds,
            behind,
        }
    }
}

/// No more of them are of use.
const SHOWN: usize = 200;

/// Sums of several counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) available: i64,
    pub(crate) blocked: i64,
    pub(crate) scheduled: i64,
    pub(crate) retrying: i64,
    pub(crate) running: i64,
    pub(crate) awaiting: i64,
    pub(crate) quarantined: i64,
    pub(crate) dead: i64,
    pub(crate) discarded: i64,
    pub(crate) expired: i64,
    pub(crate) cancelled: i64,
    /// All that were done since the installation.
    pub(crate) done: i64,
    /// Attempts that failed, since the installation.
    pub(crate) failed: i64,
    /// All that were given up since the installation.
    pub(crate) given_up: i64,
}

impl Sums {
    fn add(&mut self, of: &Counter) {
        self.available += of.available;
        self.blocked += of.blocked;
        self.scheduled += of.scheduled;
        self.retrying += of.retrying;
        self.running += of.running;
        self.awaiting += of.awaiting;
        self.quarantined += of.quarantined;
        self.dead += of.dead;
        self.discarded += of.discarded;
        self.expired += of.expired;
        self.cancelled += of.cancelled;
        self.done += of.completed_total;
        self.failed += of.failed_total;
        self.given_up += of.dead_total + of.discarded_total + of.expired_total + of.cancelled_total;
    }

    /// How many there are in a state; of completed ones nobody keeps count.
    pub(crate) fn of(&self, state: State) -> i64 {
        match state {
            State::Scheduled => self.scheduled,
            State::Available => self.available,
            State::Blocked => self.blocked,
            State::Running => self.running,
            State::Retrying => self.retrying,
            State::Awaiting => self.awaiting,
            State::Quarantined => self.quarantined,
            State::Dead => self.dead,
            State::Discarded => self.discarded,
            State::Expired => self.expired,
            State::Cancelled => self.cancelled,
            State::Completed => 0,
        }
    }

    /// Jobs that somebody will still work on.
    pub(crate) fn pending(&self) -> i64 {
        self.available
            + self.blocked
            + self.scheduled
            + self.retrying
            + self.running
            + self.awaiting
            + self.quarantined
    }
}

impl Snapshot {
    /// Sums over all queues.
    pub(crate) fn sums(&self) -> Sums {
        self.sums_of(&Filter::default())
    }

    /// Sums over the jobs that a filter names, but for its state, error and text, which nobody
    /// counts by.
    pub(crate) fn sums_of(&self, filter: &Filter) -> Sums {
        let mut sums = Sums::default();
        let is = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|one| one == is);
        for counter in &self.counters.jobs {
            if is(&filter.queue, &counter.queue)
                && is(&filter.name, &counter.name)
                && is(&filter.tag, &counter.tag)
            {
                sums.add(counter);
            }
        }
        sums
    }

    /// Sums of each queue that is known.
    pub(crate) fn by_queue(&self) -> BTreeMap<&str, Sums> {
        let mut queues: BTreeMap<&str, Sums> = BTreeMap::new();
        for queue in &self.queues {
            queues.entry(&queue.name).or_default();
        }
        for counter in &self.counters.jobs {
            queues.entry(&counter.queue).or_default().add(counter);
        }
        queues
    }

    /// For how long the next job of a queue has waited, and since when.
    pub(crate) fn oldest(&self, queue: &str) -> Option<&posthaste::Oldest> {
        let of_it = self.counters.oldest.iter().filter(|one| one.queue == queue);
        of_it.max_by(|one, other| one.seconds.total_cmp(&other.seconds))
    }

    pub(crate) fn settings(&self, queue: &str) -> Option<&QueueSettings> {
        self.queues.iter().find(|one| one.name == queue)
    }

    /// Since when a queue is paused.
    pub(crate) fn paused_at(&self, queue: &str) -> Option<Timestamp> {
        self.settings(queue)?.paused_at
    }

    /// Workers that give signs of life and work on this queue; those that do not say on which they
    /// work may.
    pub(crate) fn workers_on(&self, queue: &str) -> usize {
        let on_it = |one: &&Worker| {
            one.silent < 60.0 && (one.queues.is_empty() || one.queues.iter().any(|of| of == queue))
        };
        self.workers.iter().filter(on_it).count()
    }
}
