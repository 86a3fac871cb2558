//! Histograms of how long jobs wait and run, recorded in this process by the facade
//! [`metrics`](https://docs.rs/metrics).
//!
//! A program installs a recorder of its choice, such as that of `metrics-exporter-prometheus`,
//! **before** it starts a worker; without a recorder, nothing is recorded. The names of queues and
//! jobs are labels. The first hundred names of each queue have separate labels; all others share
//! `other`.
//!
//! Metrics of a whole database, such as how many jobs wait and how old the oldest is, do not belong
//! to one process: [`Client::counters`](crate::Client::counters) returns them, and the command
//! `posthaste exporter` exports them.
//!
//! ```
//! use posthaste::metrics;
//!
//! // Buckets of a recorder are set by the names of histograms:
//! let seconds = [0.005, 0.05, 0.5, 5.0, 50.0];
//! let buckets = [(metrics::WAIT_SECONDS, seconds), (metrics::RUN_SECONDS, seconds)];
//! assert_eq!(buckets[1].0, "posthaste_run_seconds");
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ::metrics::{Histogram, histogram};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::job::Job;
use crate::retry::Disposition;

/// Seconds from when a job was enqueued and due until its run began. Labels: `queue`, `name`. The
/// value compares the server's clock with that of this machine; a negative difference is recorded
/// as zero.
pub const WAIT_SECONDS: &str = "posthaste_wait_seconds";

/// Seconds that a run took, including relayed and synced jobs. Labels: `queue`, `name`, and
/// `outcome`: `completed`, `retried` (the attempt was counted), `rescheduled` (it was not),
/// `awaiting`, `dead`, `discarded` or `cancelled`. A job that was given back is not recorded.
pub const RUN_SECONDS: &str = "posthaste_run_seconds";

/// The most names of one queue that have separate labels.
const MAX_NAMES_PER_QUEUE: usize = 100;
/// The label of all other names.
const OTHER_LABEL: &str = "other";

/// When a run began and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTiming {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// Returns the outcome label of a run, `None` if it is not recorded.
pub(crate) fn outcome_label(job: &Job, disposition: &Disposition) -> Option<&'static str> {
    Some(match disposition {
        Disposition::Done => "completed",
        Disposition::Reschedule { attempt, .. } if *attempt > job.attempts_counted() => "retried",
        Disposition::Reschedule { .. } => "rescheduled",
        Disposition::DeadLetter { state, .. } => state,
        Disposition::Await { .. } => "awaiting",
        Disposition::GiveBack => return None,
    })
}

/// The histograms of one name.
struct Histograms {
    queue: Arc<str>,
    name: Box<str>,
    wait: Histogram,
    runs: Mutex<Vec<(&'static str, Histogram)>>,
}

impl Histograms {
    fn new(queue: &Arc<str>, name: &str) -> Self {
        Self {
            queue: Arc::clone(queue),
            name: name.into(),
            wait: histogram!(WAIT_SECONDS, "queue" => queue.to_string(), "name" => name.to_owned()),
            runs: Mutex::default(),
        }
    }

    fn run(&self, outcome: &'static str, seconds: f64) {
        let mut runs = self.runs.lock();
        let known = runs.iter().find(|(known, _)| *known == outcome);
        if let Some((_, histogram)) = known {
            return histogram.record(seconds);
        }
        let (queue, name) = (self.queue.to_string(), self.name.to_string());
        let histogram =
            histogram!(RUN_SECONDS, "queue" => queue, "name" => name, "outcome" => outcome);
        histogram.record(seconds);
        runs.push((outcome, histogram));
    }
}

/// The names of a queue and their histograms.
type NameHistograms = HashMap<Box<str>, Arc<Histograms>>;

/// The histograms of this process.
#[derive(Default)]
pub(crate) struct RunHistograms(Mutex<HashMap<Arc<str>, NameHistograms>>);

impl RunHistograms {
    /// Records runs. Consecutive runs mostly have the same name, so lookups are rare.
    pub(crate) fn add<'a>(
        &self,
        runs: impl Iterator<Item = (&'a Job, RunTiming, &'static str)>,
        now: TwoClocks,
    ) {
        let mut last: Option<(&Job, Arc<Histograms>)> = None;
        for (job, took, outcome) in runs {
            let known = last.take().filter(|(other, _)| has_same_name(other, job));
            let histograms = known.map_or_else(|| self.histograms(job), |(_, known)| known);
            histograms
                .wait
                .record(waiting_seconds(job, took.began, now));
            let ran = took.ended.saturating_duration_since(took.began);
            histograms.run(outcome, ran.as_secs_f64());
            last = Some((job, histograms));
        }
    }

    fn histograms(&self, job: &Job) -> Arc<Histograms> {
        let mut queues = self.0.lock();
        let names = queues.entry(Arc::clone(&job.queue)).or_default();
        if let Some(known) = names.get(&job.name) {
            return Arc::clone(known);
        }
        let name = match names.len() < MAX_NAMES_PER_QUEUE {
            true => &*job.name,
            false => OTHER_LABEL,
        };
        let new = || Arc::new(Histograms::new(&job.queue, name));
        Arc::clone(names.entry(name.into()).or_insert_with(new))
    }
}

fn has_same_name(one: &Job, other: &Job) -> bool {
    one.name == other.name && one.queue == other.queue
}

/// The same moment by both clocks of this machine; the second in microseconds since 1970.
pub(crate) type TwoClocks = (Instant, i64);

pub(crate) fn read_both_clocks() -> TwoClocks {
    (Instant::now(), Timestamp::now().as_microsecond())
}

/// Returns the seconds that a job had waited when its run began.
pub(crate) fn waiting_seconds(job: &Job, began: Instant, now: TwoClocks) -> f64 {
    let ago = now.0.saturating_duration_since(began).as_secs_f64();
    let ready = job.enqueued_at.max(job.scheduled_at).as_microsecond();
    ((now.1 - ready) as f64 / 1e6 - ago).max(0.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::JobId;

    fn job(name: &str) -> Job {
        Job::new(JobId(1), name, Timestamp::UNIX_EPOCH, "{}")
    }

    #[test]
    fn wait_time_ends_at_run_start_and_is_never_negative() {
        let began = Instant::now();
        let now = |after: u64, clock: i64| (began + Duration::from_secs(after), clock * 1_000_000);
        assert_eq!(waiting_seconds(&job("a"), began, now(3, 10)), 7.0);
        assert_eq!(waiting_seconds(&job("a"), began, now(3, 2)), 0.0);
        let due = Job {
            scheduled_at: Timestamp::from_second(5).unwrap(),
            ..job("a")
        };
        assert_eq!(waiting_seconds(&due, began, now(3, 10)), 2.0);
    }

    #[test]
    fn names_after_the_first_hundred_share_one_label() {
        let runs = RunHistograms::default();
        let label = |name: &str| runs.histograms(&job(name)).name.to_string();
        for n in 0..MAX_NAMES_PER_QUEUE {
            assert_eq!(label(&n.to_string()), n.to_string());
        }
        assert_eq!(
            (label("new"), label("newer")),
            (OTHER_LABEL.into(), OTHER_LABEL.into())
        );
        assert_eq!(label("7"), "7");
        assert_eq!(runs.0.lock()["default"].len(), MAX_NAMES_PER_QUEUE + 1);
    }

    #[test]
    fn released_jobs_are_not_counted_as_runs() {
        assert_eq!(outcome_label(&job("a"), &Disposition::GiveBack), None);
        assert_eq!(
            outcome_label(&job("a"), &Disposition::Done),
            Some("completed")
        );
        let again = |attempt| Disposition::Reschedule {
            attempt,
            after: None,
            until: None,
            error: None,
        };
        assert_eq!(outcome_label(&job("a"), &again(1)), Some("retried"));
        assert_eq!(outcome_label(&job("a"), &again(0)), Some("rescheduled"));
    }
}
