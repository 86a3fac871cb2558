//! Statistics: what this worker has done, by kind of job; flushed to the database about once a
//! second, so that no acknowledgement pays for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::job::Job;
use crate::retry::Disposition;
use crate::store::counters::{self, Kind};
use crate::store::link::Link;

/// How often it is flushed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs of one kind of job, by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    done: i64,
    failed: i64,
    retried: i64,
}

impl Sums {
    /// What one run adds. One that was given back adds nothing: it is run again as if it had not
    /// been.
    pub(crate) fn of(job: &Job, disposition: &Disposition) -> Self {
        let counted = |attempt: &i32| i64::from(*attempt > job.attempts_counted());
        match disposition {
            Disposition::Done => Self {
                done: 1,
                ..Self::default()
            },
            Disposition::Reschedule { attempt, .. } => Self {
                failed: counted(attempt),
                retried: 1,
                ..Self::default()
            },
            Disposition::DeadLetter { attempt, .. } => Self {
                failed: attempt.as_ref().map_or(0, counted),
                ..Self::default()
            },
            Disposition::Await { .. } | Disposition::GiveBack => Self::default(),
        }
    }

    /// Each sum with its name in `posthaste.stats_delta`.
    fn each(&self) -> [(&'static str, i64); 3] {
        [
            ("completed_total", self.done),
            ("failed_total", self.failed),
            ("retried_total", self.retried),
        ]
    }

    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.retried += other.retried;
    }
}

/// Sums that are not flushed yet.
#[derive(Default)]
pub(crate) struct Stats(Mutex<HashMap<Kind, Sums>>);

impl Stats {
    /// Adds runs that are closed for good. Neighbours are mostly of the same kind, so that few are
    /// looked up.
    pub(crate) fn add<'a>(&self, runs: impl Iterator<Item = (&'a Job, Sums)>) {
        let mut kinds: Vec<(&Job, Sums)> = Vec::new();
        for (job, sums) in runs {
            let alike = |(other, _): &&mut (&Job, Sums)| {
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
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (job, sums) in kinds {
            if sums != Sums::default() {
                pending.entry(kind(job)).or_default().add(sums);
            }
        }
    }

    fn take(&self) -> Vec<(Kind, Sums)> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.drain().collect()
    }

    fn put_back(&self, sums: Vec<(Kind, Sums)>) {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, one) in sums {
            pending.entry(kind).or_default().add(one);
        }
    }

    /// Writes what was done since the last time; sums of nothing are left out. What may have
    /// arrived is not written again: sums may lose a second, but never say too much.
    pub(crate) async fn flush(&self, link: &Link) {
        let sums = self.take();
        let mut rows = Vec::new();
        for (kind, sums) in &sums {
            let each = sums.each().into_iter().filter(|(_, jobs)| *jobs > 0);
            rows.extend(each.map(|(what, jobs)| (kind, what, jobs)));
        }
        if rows.is_empty() {
            return;
        }
        if let Err(error) = counters::flush(link, &rows).await {
            tracing::debug!(%error, "what was done could not be flushed");
            if !error.leaves_in_doubt() {
                self.put_back(sums);
            }
        }
    }
}

fn kind(job: &Job) -> Kind {
    Kind {
        queue: Arc::clone(&job.queue),
        priority: job.priority,
        name: job.name.clone(),
        tag: job.tag.clone(),
    }
}

/// Flushes until the engine has stopped.
pub(crate) async fn run(stats: Arc<Stats>, link: Arc<Link>, stopped: CancellationToken) {
    while !stopped.is_cancelled() {
        stats.flush(&link).await;
        tokio::select! { () = tokio::time::sleep(INTERVAL) => {}, () = stopped.cancelled() => {} }
    }
}
