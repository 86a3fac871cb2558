//! What this worker has done, by kind of job; told to the database about once a second, so that no acknowledgement pays for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::Engine;
use crate::job::Job;
use crate::retry::Verdict;
use crate::store;

/// How often it is told.
const INTERVAL: Duration = Duration::from_secs(1);

/// What jobs are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) queue: Arc<str>,
    pub(crate) priority: i32,
    pub(crate) name: Box<str>,
    pub(crate) tag: Box<str>,
}

impl Kind {
    fn of(job: &Job) -> Self {
        Self {
            queue: Arc::clone(&job.queue),
            priority: job.priority,
            name: job.name.clone(),
            tag: job.tag.clone(),
        }
    }
}

/// Runs of one kind of job, by what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    done: i64,
    failed: i64,
    retried: i64,
}

impl Sums {
    /// What one run adds. One that was given back adds nothing: it is run again as if it had not been.
    pub(crate) fn of(job: &Job, verdict: &Verdict) -> Self {
        let burnt = |attempt: &i32| i64::from(*attempt > job.attempt);
        match verdict {
            Verdict::Done => Self {
                done: 1,
                ..Self::default()
            },
            Verdict::Park { attempt, .. } => Self {
                failed: burnt(attempt),
                retried: 1,
                ..Self::default()
            },
            Verdict::Bury { attempt, .. } => Self {
                failed: attempt.as_ref().map_or(0, burnt),
                ..Self::default()
            },
            Verdict::Await { .. } | Verdict::GiveBack => Self::default(),
        }
    }

    /// Each sum with its name in `posthaste.tally`.
    pub(crate) fn each(&self) -> [(&'static str, i64); 3] {
        [
            ("done_total", self.done),
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

/// Sums that are not told yet.
#[derive(Default)]
pub(crate) struct Tally(Mutex<HashMap<Kind, Sums>>);

impl Tally {
    /// Adds runs that are closed for good. Neighbours are mostly of the same kind, so that few are looked up.
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
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (job, sums) in kinds {
            if sums != Sums::default() {
                told.entry(Kind::of(job)).or_default().add(sums);
            }
        }
    }

    fn take(&self) -> Vec<(Kind, Sums)> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.drain().collect()
    }

    fn put_back(&self, sums: Vec<(Kind, Sums)>) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, one) in sums {
            told.entry(kind).or_default().add(one);
        }
    }
}

/// Tells until the engine has stopped.
pub(crate) async fn run(engine: Arc<Engine>) {
    while !engine.stopped.is_cancelled() {
        tell(&engine).await;
        tokio::select! { () = tokio::time::sleep(INTERVAL) => {}, () = engine.stopped.cancelled() => {} }
    }
}

/// Tells what was done since the last time. What may have arrived is not told again: sums may lose a second, but never say too much.
pub(crate) async fn tell(engine: &Engine) {
    let sums = engine.tally.take();
    if sums.is_empty() {
        return;
    }
    if let Err(error) = store::counters::tell(&engine.looks, &sums).await {
        tracing::debug!(%error, "what was done could not be told");
        if !error.leaves_in_doubt() {
            engine.tally.put_back(sums);
        }
    }
}
