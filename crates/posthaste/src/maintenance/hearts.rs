//! Rescue: which workers are dead, as the leader has seen it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::attempt;
use crate::engine::Engine;

/// The second rescue of a dead worker comes after this long, each further one after twice as long.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest wait between two rescues of one dead worker; they go on for a day.
const LATEST: Duration = Duration::from_secs(600);

/// The hearts that this leader watches.
#[derive(Default)]
pub(super) struct Hearts {
    watched: HashMap<i64, Heart>,
}

/// A worker's heart.
struct Heart {
    beat: i64,
    since: Instant,
    rescued_at: Instant,
    /// How often its jobs were asked for since then.
    rescues: u32,
}

impl Heart {
    fn new(beat: i64) -> Self {
        Self {
            beat,
            since: Instant::now(),
            rescued_at: Instant::now(),
            rescues: 0,
        }
    }

    /// Again a few times, ever later: a claim of the dead may still commit, and a job in somebody's open transaction was skipped.
    fn is_to_be_rescued(&self) -> bool {
        let wait = AGAIN.saturating_mul(1 << self.rescues.min(16)).min(LATEST);
        self.rescues == 0 || self.rescued_at.elapsed() >= wait
    }
}

impl Hearts {
    /// A worker is dead when this leader itself saw its heart not beat for the whole interval: after an outage nobody is rescued by an old time stamp.
    pub(super) async fn watch(&mut self, engine: &Engine) {
        let link = &engine.upkeep;
        let Some(beats) = attempt!(link, beats()) else {
            // What was not watched does not count.
            self.watched.clear();
            return;
        };
        self.watched
            .retain(|worker, _| beats.iter().any(|(id, ..)| id == worker));
        for (worker, beat, stopped) in beats {
            let heart = self
                .watched
                .entry(worker)
                .or_insert_with(|| Heart::new(beat));
            if heart.beat != beat {
                *heart = Heart::new(beat);
            }
            let silent = stopped || heart.since.elapsed() >= engine.config.rescue_after;
            if !silent || !heart.is_to_be_rescued() {
                continue;
            }
            heart.rescued_at = Instant::now();
            heart.rescues += 1;
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
