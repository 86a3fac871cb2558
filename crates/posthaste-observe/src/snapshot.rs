//! The state of a whole store at one moment: data, and pure questions about the data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use posthaste::{Counter, Counters, Holder, Oldest};
use posthaste_capture::Overview;
use posthaste_relay::{RelayReport, RelayState};

use crate::facts::{
    EndedTransaction, FailedPeriodicJob, FailingJobs, GivenUpJobs, QueueActivity, QueueSettings,
    Segments, Server, StoreState, SyncedTable, Worker,
};
use crate::format::seconds_between;
use crate::redact::{capture_errors, error_text, statement};
use crate::sums::Sums;
use crate::thresholds::Thresholds;

/// The state of a whole store at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The server and the session.
    pub server: Server,
    /// The state of the store as a whole.
    pub store: StoreState,
    /// Segments of the ready log.
    pub segments: Segments,
    /// Counts of jobs, and since when the next ones wait.
    pub counters: Counters,
    /// Settings of queues.
    pub queues: Vec<QueueSettings>,
    /// Workers of this store that have not stopped.
    pub workers: Vec<Worker>,
    /// Relays.
    pub relays: Vec<RelayReport>,
    /// Synced tables.
    pub syncs: Vec<SyncedTable>,
    /// Captures.
    pub captures: Vec<Overview>,
    /// Sessions, prepared transactions, slots and replicas that hold back vacuum.
    pub holders: Vec<Holder>,
    /// The newest actions of `posthaste txwatch`, the most recent first.
    pub ended: Vec<EndedTransaction>,
    /// The activity of queues in the last ten minutes.
    pub windows: Vec<QueueActivity>,
    /// Completed jobs per minute, for queues with samples over at least nine minutes.
    pub rates: BTreeMap<String, f64>,
    /// Jobs that will be retried, the most attempts first.
    pub failing_jobs: Vec<FailingJobs>,
    /// Jobs that died or expired in the last hour.
    pub given_up: Vec<GivenUpJobs>,
    /// Periodic jobs that the leader could not enqueue.
    pub periodic: Vec<FailedPeriodicJob>,
    /// How long the read took.
    pub took: Duration,
}

impl Snapshot {
    /// Leaves out jobs with these tags, such as bulk work that may be late. A `*` at the end of a
    /// tag matches any text.
    pub fn leave_out_tags(&mut self, tags: &[String]) {
        if tags.is_empty() {
            return;
        }
        let is_left_out = |counter: &Counter| {
            tags.iter().any(|tag| match tag.strip_suffix('*') {
                Some(start) => counter.tag.starts_with(start),
                None => counter.tag == *tag,
            })
        };
        self.counters.jobs.retain(|counter| !is_left_out(counter));
        let Counters { jobs, oldest, .. } = &mut self.counters;
        let waiting = jobs
            .iter()
            .filter(|one| one.available + one.blocked + one.quarantined > 0);
        let waiting: BTreeSet<(&str, i32)> = waiting
            .map(|one| (one.queue.as_str(), one.priority))
            .collect();
        oldest.retain(|one| waiting.contains(&(one.queue.as_str(), one.priority)));
    }

    /// Hides secrets: errors and statements come from programs and may quote secrets.
    pub(crate) fn hide_secrets(&mut self) {
        let failing = self.failing_jobs.iter_mut().map(|one| &mut one.error);
        let given_up = self.given_up.iter_mut().map(|one| &mut one.error);
        let windows = self.windows.iter_mut().map(|one| &mut one.error);
        let relays = self.relays.iter_mut();
        let relays = relays.map(|one| &mut one.status.last_error);
        for error in failing.chain(given_up).chain(windows).chain(relays) {
            *error = error.take().map(|error| error_text(&error));
        }
        for relay in &mut self.relays {
            let rejections = std::mem::take(&mut relay.status.rejections).into_iter();
            let rejections = rejections.map(|(reason, times)| (error_text(&reason), times));
            relay.status.rejections = rejections.collect();
        }
        for periodic in &mut self.periodic {
            periodic.error = error_text(&periodic.error);
        }
        let syncs = self.syncs.iter_mut();
        for problem in syncs.flat_map(|one| one.problems_mut()) {
            problem.reason = error_text(&problem.reason);
        }
        self.captures.iter_mut().for_each(capture_errors);
        for holder in &mut self.holders {
            holder.query = holder.query.as_deref().map(statement);
        }
    }

    /// Returns sums over all queues.
    pub fn sums(&self) -> Sums {
        self.sums_where(|_| true)
    }

    /// Returns sums over the counters that the predicate accepts.
    pub fn sums_where(&self, is_meant: impl Fn(&Counter) -> bool) -> Sums {
        let mut sums = Sums::default();
        for counter in self.counters.jobs.iter().filter(|one| is_meant(one)) {
            sums.add(counter);
        }
        sums
    }

    /// Returns sums for each known queue.
    pub fn sums_by_queue(&self) -> BTreeMap<&str, Sums> {
        let mut queues: BTreeMap<&str, Sums> = BTreeMap::new();
        for queue in &self.queues {
            queues.entry(&queue.name).or_default();
        }
        for counter in &self.counters.jobs {
            queues.entry(&counter.queue).or_default().add(counter);
        }
        queues
    }

    /// Returns since when the next job of a queue waits, for the priority with the longest wait.
    pub fn oldest_waiting(&self, queue: &str) -> Option<&Oldest> {
        let oldest = self.counters.oldest.iter();
        let oldest = oldest.filter(|one| one.queue == queue);
        oldest.max_by(|one, other| one.seconds.total_cmp(&other.seconds))
    }

    /// Returns the queues in which jobs wait for a worker.
    pub fn waiting_queues(&self) -> BTreeSet<&str> {
        let oldest = self.counters.oldest.iter();
        oldest.map(|one| one.queue.as_str()).collect()
    }

    /// Returns the settings of a queue.
    pub fn queue_settings(&self, queue: &str) -> Option<&QueueSettings> {
        self.queues.iter().find(|one| one.name == queue)
    }

    /// Returns when a queue was paused; `None` if it is not.
    pub fn paused_at(&self, queue: &str) -> Option<Timestamp> {
        self.queue_settings(queue)?.paused_at
    }

    /// Returns workers with a recent heartbeat. In a copy they belong to the original store.
    pub fn live_workers(&self, thresholds: &Thresholds) -> impl Iterator<Item = &Worker> {
        let alive = self.workers.iter();
        alive.filter(|one| one.is_alive(thresholds))
    }

    /// Returns how many live workers serve this queue. A worker that has not reported its queues
    /// may serve any.
    pub fn live_worker_count(&self, queue: &str, thresholds: &Thresholds) -> usize {
        let alive = self.live_workers(thresholds);
        alive.filter(|one| one.serves(queue)).count()
    }

    /// Returns queues with waiting jobs that no live worker serves.
    pub fn queues_without_worker(&self, thresholds: &Thresholds) -> BTreeSet<&str> {
        let mut queues = self.waiting_queues();
        queues.retain(|queue| self.live_worker_count(queue, thresholds) == 0);
        queues
    }

    /// Returns the relays of a queue.
    pub fn relays_of(&self, queue: &str) -> impl Iterator<Item = &RelayReport> {
        let queue = queue.to_owned();
        self.relays.iter().filter(move |one| one.queue == queue)
    }

    /// Returns the sync whose changes or re-indexes this queue holds.
    pub fn sync_of(&self, queue: &str) -> Option<&SyncedTable> {
        self.syncs.iter().find(|sync| {
            posthaste_sync::queue(&sync.name) == queue
                || posthaste_sync::reindex_queue(&sync.name) == queue
        })
    }

    /// Returns the actions of `posthaste txwatch` in the last hour.
    pub fn recently_ended_transactions(&self) -> impl Iterator<Item = &EndedTransaction> {
        let now = self.server.at;
        let is_recent = move |one: &&EndedTransaction| seconds_between(one.at, now) < 3_600.0;
        self.ended.iter().filter(is_recent)
    }

    /// Returns the holders that have held back vacuum for more than a second, the oldest first. A
    /// replica that holds it back through its slot is listed once, as the slot.
    pub fn vacuum_holders(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|one| {
            !one.is_by_slot
                && one.transactions.is_some()
                && one.seconds.is_none_or(|seconds| seconds > 1.0)
        })
    }
}

/// Returns since when a relay has delivered nothing; `None` if it delivers or has stopped.
pub fn failing_since(relay: &RelayReport) -> Option<Timestamp> {
    let status = &relay.status;
    let since = status.failing_since.into_iter().chain(status.down_since);
    let since = since.min();
    match relay.state {
        RelayState::Stopped | RelayState::Standby => None,
        RelayState::Silent | RelayState::Down => since.or(Some(relay.updated_at)),
        _ => since,
    }
}

/// Returns the name of a relay: its route, or else its queue.
pub fn relay_name(relay: &RelayReport) -> &str {
    match relay.route.is_empty() {
        true => &relay.queue,
        false => &relay.route,
    }
}
