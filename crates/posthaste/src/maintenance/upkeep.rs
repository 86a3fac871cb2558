//! Every duty but the scheduled road: rotate, seal, reclaim, move aside, hold, rescue, tidy, expire, prune. Some read whole slots.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::attempt;
use super::hearts::Hearts;
use crate::engine::Engine;
use crate::store::{Reclaim, Ring, Step};

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
/// Jobs counted in one transaction, and how many lie between two marks (migrations/0018_counters.sql).
const COUNT: i32 = 20_000;
const COUNT_STEP: i32 = 125;
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Deltas of counters beyond this are added up and forgotten.
const TALLY_BYTES: i64 = 8 << 20;
/// Confirmations, workers and jobs of the past are forgotten this often.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// What posthaste.prune_inbox() forgets at once: when it does, there may be more.
const INBOX_PAGE: i64 = 10_000;

/// Runs until the engine stops; does the duties while `led` says so.
pub(super) async fn run(engine: &Engine, mut led: watch::Receiver<bool>) {
    let mut upkeep = Upkeep::new(engine);
    while !engine.stopping.is_cancelled() {
        let leads = *led.borrow_and_update();
        if leads {
            upkeep.round(engine).await;
        } else {
            upkeep = Upkeep::new(engine);
        }
        let rest = async {
            if leads {
                tokio::time::sleep(upkeep.pause(engine.config.maintenance_interval)).await;
            } else if led.changed().await.is_err() {
                std::future::pending().await
            }
        };
        tokio::select! { () = rest => {}, () = engine.stopping.cancelled() => {} }
    }
}

/// What a leader remembers between rounds; lost with its office, at the cost of some work done again.
#[derive(Default)]
struct Upkeep {
    /// When something was to be done last.
    did_at: Option<Instant>,
    expire_at: Option<Instant>,
    prune_at: Option<Instant>,
    prune_inbox_at: Option<Instant>,
    cancel_at: Option<Instant>,
    account_at: Option<Instant>,
    /// What had been written when all of it was counted.
    written: String,
    hearts: Hearts,
    verified: Verified,
    /// Who holds what up, as it was told last.
    told: HashMap<&'static str, String>,
}

/// How far the oldest generation was verified when it was looked at last.
#[derive(Default)]
struct Verified {
    generation: i64,
    batch: i64,
}

impl Upkeep {
    /// What reads whole slots comes a while after taking office: a backlog that is worked off at once is not to wait for it.
    fn new(engine: &Engine) -> Self {
        let now = Instant::now();
        Self {
            expire_at: Some(now + engine.config.expire_interval.min(COUNT_EVERY)),
            account_at: Some(now + COUNT_EVERY),
            ..Self::default()
        }
    }

    /// How long to pause: ever longer while nothing is to be done.
    fn pause(&mut self, shortest: Duration) -> Duration {
        let idle = self.did_at.get_or_insert_with(Instant::now).elapsed();
        (idle / 8).clamp(shortest, shortest * 16)
    }

    fn did(&mut self, something: bool) {
        if something {
            self.did_at = Some(Instant::now());
        }
    }

    async fn round(&mut self, engine: &Engine) {
        let link = &engine.upkeep;
        let noted = attempt!(link, note_ids());
        self.did(noted == Some(true));
        self.turn_ring(engine).await;
        self.hearts.watch(engine).await;
        let overdue = attempt!(link, overdue(OVERDUE));
        self.did(overdue > Some(0));
        if self.cancel_at.is_none_or(|at| Instant::now() >= at) {
            let started = Instant::now();
            let ended = attempt!(link, cancel_again());
            self.did(ended > Some(0));
            // It reads whole slots when there is somebody to be met: at most a twentieth of the time.
            self.cancel_at = Some(Instant::now() + started.elapsed() * 20);
        }
        let parked = attempt!(link, tidy_parked(SPENT));
        let turned = parked.as_ref().is_some_and(|step| step.did == "rotated");
        self.did(parked.as_ref().is_some_and(|step| step.did != "none"));
        if turned {
            // What waits in the old generation is not looked at by who sleeps.
            engine.bell.promoter.rung.notify_one();
        }
        self.tell_holder("tidy_parked", parked.and_then(|step| step.blocker));
        let aside = attempt!(link, tidy_aside(SPENT, MOVE));
        self.did(aside.as_ref().is_some_and(|step| step.did != "none"));
        self.tell_holder("tidy_aside", aside.and_then(|step| step.blocker));
        if self.expire_at.is_none_or(|at| Instant::now() >= at) {
            self.expire(engine).await;
        }
        if self.account_at.is_none_or(|at| Instant::now() >= at) {
            self.account(engine).await;
        }
        if self.prune_at.is_none_or(|at| Instant::now() >= at) {
            attempt!(link, prune());
            let history = attempt!(link, tidy_history());
            self.tell_holder("tidy_history", history.and_then(|step| step.blocker));
            self.prune_at = Some(Instant::now() + PRUNE_EVERY);
        }
        if self.prune_inbox_at.is_none_or(|at| Instant::now() >= at) {
            let is_full = attempt!(link, prune_inbox()) >= Some(INBOX_PAGE);
            self.did(is_full);
            // A page a round, so that no other duty waits for a backlog of it.
            self.prune_inbox_at = (!is_full).then(|| Instant::now() + PRUNE_EVERY);
        }
    }

    /// Rotates, seals and reclaims; when the ring is full, removes what pins it.
    async fn turn_ring(&mut self, engine: &Engine) {
        let link = &engine.upkeep;
        let bytes = engine.config.generation_bytes;
        let rotated = attempt!(link, rotate(bytes)).unwrap_or_default();
        let full = rotated == "full";
        self.did(rotated != "small");
        let writer = loop {
            match attempt!(link, seal()) {
                Some(Step { did: true, .. }) => self.did(true),
                step => break step.and_then(|step| step.blocker),
            }
        };
        self.tell_writer(writer.filter(|_| full));
        let Some(ring) = attempt!(link, ring()) else {
            return;
        };
        if ring.ready_low < ring.ready_scan {
            self.did(true);
            self.reclaim(engine, ring).await;
        } else if full {
            attempt!(link, move_aside((ring.ready_scan % 4) as i32, MOVE));
        }
    }

    async fn reclaim(&mut self, engine: &Engine, ring: Ring) {
        let link = &engine.upkeep;
        if self.verified.generation != ring.ready_low {
            self.verified = Verified {
                generation: ring.ready_low,
                batch: 0,
            };
        }
        match attempt!(link, reclaim(ring.ready_low, VERIFY)) {
            Some(Reclaim::Open(batch)) => {
                let stuck = self.verified.batch == batch;
                self.verified.batch = batch;
                // Older than two rotations: whoever still runs is held in a table of its own.
                if stuck && ring.ready_current - ring.ready_low >= 2 {
                    attempt!(link, hold((ring.ready_low % 4) as i32, batch, HOLD));
                }
            }
            Some(Reclaim::Blocked { batch, by }) => {
                self.verified.batch = batch;
                self.tell_holder("reclaim", Some(by));
            }
            Some(Reclaim::Truncated) => self.tell_holder("reclaim", None),
            Some(Reclaim::Nothing) | None => {}
        }
    }

    /// Looking for expired jobs reads whole slots: at most a twentieth of the time.
    async fn expire(&mut self, engine: &Engine) {
        let link = &engine.upkeep;
        let started = Instant::now();
        attempt!(link, confirm(EXPIRE));
        for slot in 0..8 {
            attempt!(link, expire(slot, EXPIRE));
        }
        let pause = engine.config.expire_interval.max(started.elapsed() * 20);
        self.expire_at = Some(Instant::now() + pause);
    }

    /// Counting goes on for a twentieth of the time while there is a backlog to be counted; looking whether there is takes a five hundredth.
    async fn account(&mut self, engine: &Engine) {
        let started = Instant::now();
        let known = self.written.as_str();
        let counted = attempt!(
            &engine.upkeep,
            account(COUNT, COUNT_STEP, TALLY_BYTES, known)
        );
        // None: there is more to be counted.
        self.did(counted == Some(None));
        let pause = match counted {
            Some(None) => started.elapsed() * 19,
            _ => (started.elapsed() * 500).clamp(COUNT_EVERY, COUNT_EVERY * 60),
        };
        self.written = counted.flatten().unwrap_or_default();
        self.account_at = Some(Instant::now() + pause);
    }

    fn tell_holder(&mut self, duty: &'static str, blocker: Option<String>) {
        if let Some(by) = self.news(duty, blocker) {
            tracing::warn!(
                duty,
                by,
                "a session holds a lock on a spent generation: its space waits, claims do not"
            );
        }
    }

    fn tell_writer(&mut self, blocker: Option<String>) {
        if let Some(by) = self.news("seal", blocker) {
            tracing::warn!(
                by,
                "the ring is full and a transaction that has enqueued is open: space waits for its end, claims do not"
            );
        }
    }

    /// Whoever is not known yet to hold this up.
    fn news(&mut self, duty: &'static str, blocker: Option<String>) -> Option<String> {
        match blocker {
            Some(by) if by.is_empty() || self.told.get(duty) == Some(&by) => None,
            Some(by) => {
                self.told.insert(duty, by.clone());
                Some(by)
            }
            None => {
                self.told.remove(duty);
                None
            }
        }
    }
}
