//! Rescue: which workers are dead, as the leader has seen it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use super::{LONGEST_PAUSE, attempt};
use crate::config::Config;
use crate::retry::Backoff;
use crate::store::reconnecting::ReconnectingClient;

/// After a rescue of a dead worker; rescues go on for a day.
const AGAIN: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(600),
};
/// The leader alone rescues: no other worker competes with it.
const NO_JITTER: f64 = 1.0;

/// The heartbeats that this leader watches.
#[derive(Default)]
pub(super) struct Liveness {
    watched: HashMap<i64, Seen>,
    /// When the last poll was answered.
    polled: Option<Instant>,
}

/// What was seen of one worker.
struct Seen {
    beat: i64,
    /// For how long no heartbeat was seen.
    silent: Duration,
    rescued_at: Instant,
    /// How often its jobs were asked for since then.
    rescues: u32,
}

impl Seen {
    fn new(beat: i64) -> Self {
        Self {
            beat,
            silent: Duration::ZERO,
            rescued_at: Instant::now(),
            rescues: 0,
        }
    }

    /// Again a few times, after longer and longer waits: a claim of the dead may still commit, and
    /// a job in somebody's open transaction was skipped.
    fn needs_rescue(&self) -> bool {
        let wait = AGAIN.after(self.rescues, NO_JITTER);
        self.rescues == 0 || self.rescued_at.elapsed() >= wait
    }
}

impl Liveness {
    /// A worker is dead when this leader itself saw no heartbeat of it for the whole interval:
    /// after an outage nobody is rescued by an old time stamp. Nor after a time in which the server
    /// stood still: the duration of a poll does not count, and no more between two polls than
    /// there usually is.
    pub(super) async fn watch(&mut self, link: &ReconnectingClient, config: &Config) {
        let longest = LONGEST_PAUSE * config.maintenance_interval;
        let longest = longest.max(config.rescue_after / 6);
        let passed = self.polled.take().map(|at| at.elapsed().min(longest));
        let Some(beats) = attempt!(link, beats()) else {
            // What was not watched does not count.
            self.watched.clear();
            return;
        };
        self.polled = Some(Instant::now());
        self.watched
            .retain(|worker, _| beats.iter().any(|(id, ..)| id == worker));
        for (worker, beat, stopped) in beats {
            let seen = match self.watched.entry(worker) {
                Entry::Vacant(entry) => entry.insert(Seen::new(beat)),
                Entry::Occupied(entry) => {
                    let seen = entry.into_mut();
                    if seen.beat == beat {
                        seen.silent += passed.unwrap_or_default();
                    } else {
                        *seen = Seen::new(beat);
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
            // A call takes a limited number of batches: again while there are any.
            while let Some(jobs) = attempt!(link, rescue(worker, beat)) {
                if jobs == 0 {
                    break;
                }
                tracing::warn!(worker, jobs, "rescued the jobs of a dead worker");
            }
        }
    }
}
