//! Statistics of this worker: outcomes by kind of job, and waits by queue. They are written to the
//! database approximately once a second, so that acknowledgements do not pay for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::job::Job;
use crate::metrics::{self, RunTiming, TwoClocks};
use crate::retry::Disposition;
use crate::store::counters::{self, Kind};
use crate::store::reconnecting::ReconnectingClient;

/// The longest wait that is counted, in seconds: sums stay within 64 bits, whatever a clock
/// returns.
const MAX_WAIT_SECONDS: f64 = 86_400.0;
/// Time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Sums of the runs of one kind of job, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunSums {
    done: i64,
    failed: i64,
    retried: i64,
    started: i64,
    /// The milliseconds that the started jobs had waited.
    waited: i64,
}

impl RunSums {
    /// Returns the sums of one run whose job had waited for this many seconds. A job that was given
    /// back adds nothing, because it runs again.
    fn new(job: &Job, disposition: &Disposition, waited: f64) -> Self {
        let counted = |attempt: &i32| i64::from(*attempt > job.attempts_counted());
        let started = Self {
            started: 1,
            waited: (waited.clamp(0.0, MAX_WAIT_SECONDS) * 1_000.0) as i64,
            ..Self::default()
        };
        match disposition {
            Disposition::Done => Self { done: 1, ..started },
            Disposition::Reschedule { attempt, .. } => Self {
                failed: counted(attempt),
                retried: 1,
                ..started
            },
            Disposition::DeadLetter { attempt, .. } => Self {
                failed: attempt.as_ref().map_or(0, counted),
                ..started
            },
            Disposition::Await { .. } => started,
            Disposition::GiveBack => Self::default(),
        }
    }

    /// Returns the sums that are stored by kind, with their names in `posthaste.stats_delta`.
    fn by_kind_sums(&self) -> [(&'static str, i64); 3] {
        [
            ("completed_total", self.done),
            ("failed_total", self.failed),
            ("retried_total", self.retried),
        ]
    }

    /// Returns the sums that are stored by queue, because queues are fewer.
    fn queue_totals(&self) -> [(&'static str, i64); 2] {
        [
            ("started_total", self.started),
            ("waited_total", self.waited),
        ]
    }

    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.retried += other.retried;
        self.started += other.started;
        self.waited += other.waited;
    }
}

/// Sums that have not been written.
#[derive(Default)]
pub(crate) struct Stats(Mutex<HashMap<Kind, RunSums>>);

impl Stats {
    /// Adds runs that are acknowledged. Consecutive runs are mostly of the same kind, so few kinds
    /// are compared.
    pub(crate) fn add<'a>(
        &self,
        runs: impl Iterator<Item = (&'a Job, &'a Disposition, RunTiming)>,
        now: TwoClocks,
    ) {
        let mut kinds: Vec<(&Job, RunSums)> = Vec::new();
        for (job, disposition, took) in runs {
            let sums = RunSums::new(
                job,
                disposition,
                metrics::waiting_seconds(job, took.began, now),
            );
            let alike = |(other, _): &&mut (&Job, RunSums)| {
                other.name == job.name
                    && other.tag == job.tag
                    && other.priority == job.priority
                    && other.queue == job.queue
            };
            match kinds.iter_mut().rev().take(16).find(alike) {
                Some((_, known)) => known.add(sums),
                None => kinds.push((job, sums)),
            }
        }
        let mut pending = self.0.lock();
        for (job, sums) in kinds {
            if sums != RunSums::default() {
                pending.entry(kind_of_job(job)).or_default().add(sums);
            }
        }
    }

    fn take(&self) -> Vec<(Kind, RunSums)> {
        let mut pending = self.0.lock();
        pending.drain().collect()
    }

    fn put_back(&self, sums: Vec<(Kind, RunSums)>) {
        let mut pending = self.0.lock();
        for (kind, one) in sums {
            pending.entry(kind).or_default().add(one);
        }
    }

    /// Writes the sums since the last call, except zeros. If the outcome of a write is unknown, it
    /// is not repeated: sums may lack a second, but are never too large.
    pub(crate) async fn flush(&self, link: &ReconnectingClient) {
        let sums = self.take();
        let queues = sums_by_queue(&sums);
        let mut rows = Vec::new();
        let kinds = sums
            .iter()
            .map(|(kind, sums)| (kind, sums.by_kind_sums().to_vec()));
        let queues = queues
            .iter()
            .map(|(queue, sums)| (queue, sums.queue_totals().to_vec()));
        for (kind, sums) in kinds.chain(queues) {
            let some = sums.into_iter().filter(|(_, jobs)| *jobs > 0);
            rows.extend(some.map(|(what, jobs)| (kind, what, jobs)));
        }
        if rows.is_empty() {
            return;
        }
        if let Err(error) = counters::flush(link, &rows).await {
            tracing::debug!(%error, "statistics could not be flushed");
            if !error.leaves_in_doubt() {
                self.put_back(sums);
            }
        }
    }
}

/// Returns the sums of each queue, under a kind with an empty name and tag.
fn sums_by_queue(sums: &[(Kind, RunSums)]) -> HashMap<Kind, RunSums> {
    let mut queues: HashMap<Kind, RunSums> = HashMap::new();
    for (kind, sums) in sums {
        let queue = Kind {
            queue: Arc::clone(&kind.queue),
            priority: 0,
            name: "".into(),
            tag: "".into(),
        };
        queues.entry(queue).or_default().add(*sums);
    }
    queues
}

fn kind_of_job(job: &Job) -> Kind {
    Kind {
        queue: Arc::clone(&job.queue),
        priority: job.priority,
        name: job.name.clone(),
        tag: job.tag.clone(),
    }
}

/// Writes statistics until the engine has stopped.
pub(crate) async fn write_until_stopped(
    stats: Arc<Stats>,
    link: Arc<ReconnectingClient>,
    stopped: CancellationToken,
) {
    while !stopped.is_cancelled() {
        stats.flush(&link).await;
        tokio::select! {
            () = tokio::time::sleep(WRITE_INTERVAL) => {}
            () = stopped.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::JobId;

    fn job(name: &str) -> Job {
        Job::new(JobId(1), name, Timestamp::UNIX_EPOCH, "{}")
    }

    #[test]
    fn released_jobs_record_no_wait_and_awaited_jobs_do() {
        let of = |disposition| RunSums::new(&job("a"), &disposition, 1.25);
        assert_eq!(of(Disposition::GiveBack), RunSums::default());
        let done = of(Disposition::Done);
        assert_eq!((done.done, done.started, done.waited), (1, 1, 1_250));
    }

    #[test]
    fn waits_are_clamped_between_zero_and_a_day() {
        let waited = |seconds| RunSums::new(&job("a"), &Disposition::Done, seconds).waited;
        let all = [-1.0, f64::NAN, 1e300].map(waited);
        assert_eq!(all, [0, 0, 86_400_000]);
    }

    #[test]
    fn waits_are_summed_by_queue() {
        let sums = |started, waited| RunSums {
            started,
            waited,
            ..RunSums::default()
        };
        let all = [
            (kind_of_job(&job("a")), sums(1, 5)),
            (kind_of_job(&job("b")), sums(2, 7)),
        ];
        let queues: Vec<RunSums> = sums_by_queue(&all).into_values().collect();
        assert_eq!(queues, [sums(3, 12)]);
    }
}
