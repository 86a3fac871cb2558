//! The elected duties: promote, rotate, seal, reclaim, move aside, hold, rescue, expire. Any worker can be the leader; each duty is a short
//! transaction behind a lock of its own, so that two leaders at once only waste a little work.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Uncertain};
use crate::error::Error;
use crate::store::link::Link;
use crate::store::{self, Reclaim, Ring};

/// Jobs promoted in one transaction: claims never wait behind more than this.
const PROMOTE: i32 = 5_000;
/// Jobs moved aside in one transaction.
const MOVE: i32 = 10_000;
/// Running jobs held in one transaction.
const HOLD: i32 = 200;
/// Batches verified in one transaction.
const VERIFY: i32 = 10_000;
/// A slot is compacted when this many of its rows, and half of them, are spent.
const SPENT: i64 = 100_000;
/// Expired jobs kept in one transaction.
const EXPIRE: i32 = 5_000;
/// Confirmations that never came, tried again in one transaction.
const OVERDUE: i32 = 1_000;
/// The second rescue of a dead worker comes after this long, each further one after twice as long.
const RESCUE_AGAIN: Duration = Duration::from_secs(2);
/// The longest wait between two rescues of one dead worker; they go on for a day.
const RESCUE_LATEST: Duration = Duration::from_secs(600);
/// How long a claim without an answer may still commit on the server.
const UNCERTAIN_FOR: Duration = Duration::from_secs(120);

/// Runs until the engine stops; does the duties while it is the leader.
pub(crate) async fn run(engine: Arc<Engine>) {
    let interval = engine.config.maintenance_interval;
    let lease = (interval * 8).max(Duration::from_secs(5));
    let mut leader = Leader::default();
    let mut led_until: Option<Instant> = None;
    while !engine.stopping.is_cancelled() {
        if led_until.is_none_or(|until| Instant::now() + lease / 2 > until) {
            let asked = Instant::now();
            led_until = match lead(&engine, lease).await {
                Ok(true) => Some(asked + lease),
                Ok(false) => None,
                Err(error) => {
                    tracing::debug!(%error, "the lease of maintenance could not be asked for");
                    None
                }
            };
            if led_until.is_none() {
                leader = Leader::default();
            }
        }
        let pause = match led_until {
            Some(_) => leader.round(&engine).await,
            None => lease / 4,
        };
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = engine.stopping.cancelled() => {} }
    }
}

async fn lead(engine: &Engine, lease: Duration) -> Result<bool, Error> {
    let worker = engine.worker().await?;
    store::lead(&engine.promotions, worker, lease).await
}

/// What a leader remembers between rounds; lost with its office, at the cost of some work done again.
#[derive(Default)]
struct Leader {
    upkeep_at: Option<Instant>,
    expire_at: Option<Instant>,
    prune_at: Option<Instant>,
    hearts: HashMap<i64, Heart>,
    /// How far the oldest generation is verified: (generation, batch). It counts only within the session that verified it.
    verified: (i64, i64),
    blocked_by: Option<i32>,
}

/// A worker's heart, as this leader has watched it.
struct Heart {
    beat: i64,
    since: Instant,
    rescued_at: Instant,
    /// How often its jobs were asked for since then.
    rescues: u32,
}

impl Leader {
    /// Does what is due and returns how long to pause.
    async fn round(&mut self, engine: &Engine) -> Duration {
        let link = &engine.promotions;
        self.note("tell_due", store::tell_due(link).await);
        let promoted = self
            .note("promote", store::promote(link, PROMOTE, false).await)
            .unwrap_or(0);
        let carried = self
            .note("promote", store::promote(link, PROMOTE, true).await)
            .unwrap_or(0);
        let now = Instant::now();
        let due = |at: &mut Option<Instant>, every: Duration| {
            let is_due = at.is_none_or(|last| now.duration_since(last) >= every);
            if is_due {
                *at = Some(now);
            }
            is_due
        };
        if due(&mut self.upkeep_at, engine.config.maintenance_interval) {
            self.upkeep(engine).await;
        }
        if due(&mut self.expire_at, engine.config.expire_interval) {
            let started = Instant::now();
            self.note("expire", store::expire(&engine.promotions, EXPIRE).await);
            // Looking for expired jobs reads whole slots: at most a twentieth of the time.
            self.expire_at = Some(
                Instant::now()
                    + (started.elapsed() * 20).saturating_sub(engine.config.expire_interval),
            );
        }
        if due(&mut self.prune_at, Duration::from_secs(600)) {
            self.note("prune", store::prune(&engine.promotions).await);
        }
        if promoted.max(carried) >= i64::from(PROMOTE) {
            Duration::from_millis(1)
        } else {
            engine.config.promote_interval
        }
    }

    /// A duty that failed is tried again in the next round.
    fn note<T>(&self, duty: &'static str, result: Result<T, Error>) -> Option<T> {
        result
            .inspect_err(
                |error| tracing::warn!(duty, %error, "a maintenance duty failed; it is tried again"),
            )
            .ok()
    }

    async fn upkeep(&mut self, engine: &Engine) {
        self.turn_ring(engine).await;
        self.rescue(engine).await;
        self.note("overdue", store::overdue(&engine.promotions, OVERDUE).await);
        self.note(
            "tidy_parked",
            store::tidy_parked(&engine.promotions, SPENT).await,
        );
        self.note(
            "tidy_aside",
            store::tidy_aside(&engine.promotions, SPENT, MOVE).await,
        );
    }

    /// Rotates, seals and reclaims; when the ring is full, removes what pins it.
    async fn turn_ring(&mut self, engine: &Engine) {
        let link = &engine.promotions;
        let full = self
            .note(
                "rotate",
                store::rotate(link, engine.config.generation_bytes).await,
            )
            .is_some_and(|did| did == "full");
        while self.note("seal", store::seal(link).await) == Some(true) {}
        let Some(ring) = self.note("ring", store::ring(link).await) else {
            return;
        };
        if ring.ready_low < ring.ready_scan {
            self.reclaim(engine, ring).await;
        } else if full {
            self.note(
                "move_aside",
                store::move_aside(link, (ring.ready_scan % 4) as i32, MOVE).await,
            );
        }
    }

    async fn reclaim(&mut self, engine: &Engine, ring: Ring) {
        let link = &engine.promotions;
        if self.verified.0 != ring.ready_low {
            self.verified = (ring.ready_low, 0);
        }
        match self.note(
            "reclaim",
            store::reclaim(link, ring.ready_low, self.verified.1, VERIFY).await,
        ) {
            Some(Reclaim::Open(batch)) => {
                let stuck = self.verified.1 == batch;
                self.verified.1 = batch;
                // Older than two rotations: whoever still runs is held in a table of its own.
                if stuck && ring.ready_current - ring.ready_low >= 2 {
                    self.note(
                        "hold",
                        store::hold(link, (ring.ready_low % 4) as i32, batch, HOLD).await,
                    );
                }
            }
            Some(Reclaim::Blocked { batch, pid }) => {
                self.verified.1 = batch;
                if pid != 0 && self.blocked_by != Some(pid) {
                    tracing::warn!(
                        pid,
                        "a session holds a lock on a spent generation: its space waits, claims do not"
                    );
                }
                self.blocked_by = (pid != 0).then_some(pid);
            }
            Some(Reclaim::Truncated) => self.blocked_by = None,
            Some(Reclaim::Nothing) | None => {}
        }
    }

    /// A worker is dead when this leader itself saw its heart not beat for the whole interval: after an outage nobody is rescued by an old time stamp.
    async fn rescue(&mut self, engine: &Engine) {
        let Some(beats) = self.note("beats", store::beats(&engine.promotions).await) else {
            // What was not watched does not count.
            self.hearts.clear();
            return;
        };
        self.hearts
            .retain(|worker, _| beats.iter().any(|(id, ..)| id == worker));
        for (worker, beat, stopped) in beats {
            let heart = self.hearts.entry(worker).or_insert_with(|| Heart {
                beat,
                since: Instant::now(),
                rescued_at: Instant::now(),
                rescues: 0,
            });
            if heart.beat != beat {
                *heart = Heart {
                    beat,
                    since: Instant::now(),
                    rescued_at: Instant::now(),
                    rescues: 0,
                };
            }
            let silent = stopped || heart.since.elapsed() >= engine.config.rescue_after;
            // Again a few times, ever later: a claim of the dead may still commit, and a job in somebody's open transaction was skipped.
            let wait = RESCUE_AGAIN
                .saturating_mul(1 << heart.rescues.min(16))
                .min(RESCUE_LATEST);
            if !silent || (heart.rescues > 0 && heart.rescued_at.elapsed() < wait) {
                continue;
            }
            heart.rescued_at = Instant::now();
            heart.rescues += 1;
            // A call takes a limited number of batches: again while there are any.
            while let Some(jobs) = self.note(
                "rescue",
                store::rescue(&engine.promotions, worker, beat).await,
            ) {
                if jobs == 0 {
                    break;
                }
                tracing::warn!(worker, jobs, "rescued the jobs of a dead worker");
            }
        }
    }
}

/// Gives back claims whose answers never came: at once, and again for a while, because a claim may commit after the first try. On a link of its own,
/// which is opened when there is such a claim.
pub(crate) async fn return_uncertain(engine: Arc<Engine>, link: Link) {
    while !engine.stopped.is_cancelled() {
        let open: Vec<(uuid::Uuid, Uncertain)> = engine
            .uncertain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(token, one)| (*token, *one))
            .collect();
        for (token, one) in open {
            match store::return_claim(&link, one.worker, token).await {
                Ok(0) if one.since.elapsed() > UNCERTAIN_FOR => {
                    engine
                        .uncertain
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(&token);
                }
                Ok(0) => {}
                Ok(jobs) => tracing::info!(jobs, "gave back a claim whose answer was lost"),
                Err(error) => tracing::debug!(%error, "a lost claim could not be given back yet"),
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = engine.stopped.cancelled() => {} }
    }
}
