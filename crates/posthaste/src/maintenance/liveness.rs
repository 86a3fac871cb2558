//! Rescue of the jobs of dead workers, by heartbeats that the leader has seen.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use super::{MAX_PAUSE_INTERVALS, attempt};
use crate::config::Config;
use crate::retry::Backoff;
use crate::store::reconnecting::ReconnectingClient;

/// Delay after each rescue of a dead worker; rescues continue for a day.
const RESCUE_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(600),
};
/// The leader alone rescues: no other worker competes with it.
const NO_JITTER: f64 = 1.0;

/// The heartbeats that this leader has seen.
#[derive(Default)]
pub(super) struct Liveness {
    watched: HashMap<i64, WatchedWorker>,
    /// When the last poll was answered.
    polled: Option<Instant>,
}

/// The state of one watched worker.
struct WatchedWorker {
    beat: i64,
    /// How long no new heartbeat was seen.
    silent: Duration,
    rescued_at: Instant,
    /// Rescues since then.
    rescues: u32,
}

impl WatchedWorker {
    fn new(beat: i64) -> Self {
        Self {
            beat,
            silent: Duration::ZERO,
            rescued_at: Instant::now(),
            rescues: 0,
        }
    }

    /// Whether to rescue now. Rescues are repeated with growing delays: a claim of the dead worker
    /// may still commit, and a job locked by an open transaction was skipped.
    fn needs_rescue(&self) -> bool {
        let wait = RESCUE_BACKOFF.after(self.rescues, NO_JITTER);
        self.rescues == 0 || self.rescued_at.elapsed() >= wait
    }
}

impl Liveness {
    /// Watches the heartbeats and rescues the jobs of dead workers. A worker is dead when this
    /// leader saw no heartbeat for `rescue_after`. Old time stamps do not count, so no worker is
    /// rescued because of an outage of the database. Time in which the server was suspended does
    /// not count either: the duration of a poll is excluded, and the time between two polls counts
    /// only up to its usual length.
    pub(super) async fn watch(&mut self, link: &ReconnectingClient, config: &Config) {
        let longest = MAX_PAUSE_INTERVALS * config.maintenance_interval;
        let longest = longest.max(config.rescue_after / 6);
        let passed = self.polled.take().map(|at| at.elapsed().min(longest));
        let Some(beats) = attempt!(link, read_heartbeats()) else {
            // Unwatched time does not count.
            self.watched.clear();
            return;
        };
        self.polled = Some(Instant::now());
        self.watched
            .retain(|worker, _| beats.iter().any(|(id, ..)| id == worker));
        for (worker, beat, stopped) in beats {
            let seen = match self.watched.entry(worker) {
                Entry::Vacant(entry) => entry.insert(WatchedWorker::new(beat)),
                Entry::Occupied(entry) => {
                    let seen = entry.into_mut();
                    if seen.beat == beat {
                        seen.silent += passed.unwrap_or_default();
                    } else {
                        *seen = WatchedWorker::new(beat);
                    }
                    seen
                }
            };
            let silent = stopped || seen.silent >= config.rescue_after;
            if !silent || !seen.needs_rescue() {
                continue;
            }
            seen.rescued_at = Instant::now();
            seen.rescues += 1;
            // One call rescues a limited number of batches, so it is repeated until none is left.
            while let Some(jobs) = attempt!(link, rescue(worker, beat)) {
                if jobs == 0 {
                    break;
                }
                tracing::warn!(worker, jobs, "rescued the jobs of a dead worker");
            }
        }
    }
}
