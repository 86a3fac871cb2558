//! The bell: wakes who sleeps as soon as there is something to do. A hint and no more: whatever it misses is found by looking
//! (migrations/0017_bell.sql).

mod ear;
pub(crate) mod sleep;
pub(crate) mod watch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_postgres::Notification;

use crate::engine::Engine;
use crate::error::Error;
pub(crate) use ear::{Ear, Listen, listener};
use sleep::{Rings, Sleep};

/// What is armed rings for this long unless it is armed again: workers that died asleep are not rung for any longer.
const LEASE: Duration = Duration::from_secs(30);
/// The longest wait between two attempts to listen.
const LATEST: Duration = Duration::from_secs(60);
/// The bit of posthaste.flags that belongs to the leader, whose queue is "".
const LEADER: i64 = 2;

/// Somebody who can be woken.
#[derive(Default)]
pub(crate) struct Sleeper {
    /// Told when there may be something to do.
    pub(crate) rung: Notify,
    sleep: Mutex<Sleep>,
}

impl Sleeper {
    fn sleep<T>(&self, change: impl FnOnce(&mut Sleep) -> T) -> T {
        change(&mut self.sleep.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.sleep(|sleep| sleep.is_armed())
    }

    /// It is not rung for any more, or wants no more to be.
    pub(crate) fn forget(&self) {
        self.sleep(Sleep::forget);
    }
}

/// The bell of a worker process.
#[derive(Default)]
pub(crate) struct Bell {
    /// Rings are heard.
    is_heard: AtomicBool,
    /// Told when somebody wants to be rung for.
    wanted: Notify,
    /// The promoter.
    pub(crate) promoter: Sleeper,
}

impl Bell {
    /// How long whoever found nothing is to pause, `idle` after the last find; `None`: until it is woken.
    pub(crate) fn pause(
        &self,
        sleeper: &Sleeper,
        idle: Duration,
        longest: Duration,
    ) -> Option<Duration> {
        let heard = self.is_heard.load(Ordering::SeqCst);
        let (pause, wanted) = sleeper.sleep(|sleep| {
            let pause = sleep.pause(Instant::now(), idle, longest, heard);
            (pause, sleep.is_wanted())
        });
        if wanted {
            self.wanted.notify_one();
        }
        pause
    }
}

/// Listens until the engine stops, over one connection after the other.
pub(crate) async fn run(engine: Arc<Engine>, listen: Listen) {
    let mut failures = 0u32;
    while !engine.stopping.is_cancelled() {
        match ear::open(&engine, &listen).await {
            Ok(mut ear) => {
                failures = 0;
                tracing::debug!("the bell is heard");
                heard(&engine, &mut ear).await;
            }
            Err(error) => {
                failures += 1;
                if failures == 1 {
                    tracing::warn!(%error, "the bell cannot be heard; the worker looks by itself");
                }
            }
        }
        let wait = Duration::from_millis(250).saturating_mul(1 << failures.min(8));
        let wait = wait.min(LATEST).mul_f64(0.5 + fastrand::f64() / 2.0);
        tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
    }
}

/// Serves one connection to its end. Whatever was armed is forgotten then, and everybody looks.
async fn heard(engine: &Engine, ear: &mut Ear) {
    let mut door = Door::of(engine, ear.bits());
    engine.bell.is_heard.store(true, Ordering::SeqCst);
    // They pause by now without knowing that they could be rung for.
    door.wake_all();
    let ended = door.serve(ear).await;
    engine.bell.is_heard.store(false, Ordering::SeqCst);
    for (sleeper, _) in &door.sleepers {
        sleeper.forget();
    }
    match ended {
        Ok(()) => {
            // Others of the same queues are told, and arm them again. Without an answer the lease ends it.
            if let Err(error) = ear.rest(door.armed).await {
                tracing::debug!(%error, "the bell was left armed");
            }
        }
        Err(error) => tracing::info!(%error, "the bell fell silent; it is listened for again"),
    }
    door.wake_all();
}

/// Who is woken by what, and how often they were.
struct Door<'a> {
    engine: &'a Engine,
    /// With their bits: the queues in the engine's order, and the promoter.
    sleepers: Vec<(&'a Sleeper, i64)>,
    rings: HashMap<String, Rings>,
    armed: i64,
}

impl<'a> Door<'a> {
    fn of(engine: &'a Engine, bits: &[i64]) -> Self {
        let queues = engine.queues.iter().map(|queue| &queue.sleeper);
        let mut sleepers: Vec<_> = queues.zip(bits.iter().copied()).collect();
        sleepers.push((&engine.bell.promoter, LEADER));
        Self {
            engine,
            sleepers,
            rings: HashMap::new(),
            armed: 0,
        }
    }

    fn wake_all(&self) {
        for (sleeper, _) in &self.sleepers {
            sleeper.rung.notify_one();
        }
    }

    /// Until the engine stops, or the connection fails. One thing at a time: what a rest has disarmed is never taken for armed, because a rest
    /// that came before an answer is read after it.
    async fn serve(&mut self, ear: &mut Ear) -> Result<(), Error> {
        let mut renewal = tokio::time::interval(LEASE / 3);
        loop {
            tokio::select! {
                () = self.engine.stopping.cancelled() => return Ok(()),
                rung = ear.next() => self.answer(ear, rung?).await?,
                () = self.engine.bell.wanted.notified() => self.arm(ear).await?,
                // It also finds out whether there is anybody at the other end.
                _ = renewal.tick() => {
                    self.rings.retain(|_, rings| !rings.is_over(Instant::now()));
                    self.arm(ear).await?;
                }
            }
        }
    }

    /// Arms what is wanted and keeps armed what is.
    async fn arm(&mut self, ear: &Ear) -> Result<(), Error> {
        let mut bits = 0;
        for (sleeper, bit) in &self.sleepers {
            if sleeper.sleep(|sleep| sleep.is_wanted() || sleep.is_armed()) {
                bits |= bit;
            }
        }
        // Refused while somebody's open transaction writes the first route: wanted still, and asked for again by who pauses.
        if !ear.arm(bits, LEASE).await? {
            return Ok(());
        }
        self.armed |= bits;
        for (sleeper, bit) in &self.sleepers {
            if bits & bit != 0 && !sleeper.is_armed() {
                sleeper.sleep(|sleep| sleep.arm(Instant::now()));
                // Once more: what was committed before it was armed rings no bell.
                sleeper.rung.notify_one();
            }
        }
        Ok(())
    }

    async fn answer(&mut self, ear: &Ear, rung: Notification) -> Result<(), Error> {
        match rung.channel() {
            "posthaste" => {
                let queue = rung.payload();
                let ours = |one: &&Arc<crate::engine::QueueState>| *one.name == *queue;
                if queue.is_empty() {
                    self.engine.bell.promoter.rung.notify_one();
                } else if let Some(queue) = self.engine.queues.iter().find(ours) {
                    queue.sleeper.rung.notify_one();
                }
                if self.too_often(queue) {
                    ear.rest_for(queue).await?;
                }
            }
            _ => self.rest(rung.payload()),
        }
        Ok(())
    }

    fn too_often(&mut self, queue: &str) -> bool {
        let now = Instant::now();
        let rings = match self.rings.get_mut(queue) {
            Some(rings) => rings,
            None => self
                .rings
                .entry(queue.to_owned())
                .or_insert(Rings::new(now)),
        };
        let too_many = rings.are_too_many(now);
        if too_many {
            *rings = Rings::new(now);
        }
        too_many
    }

    /// Somebody put these bells to rest, ourselves perhaps.
    fn rest(&mut self, bits: &str) {
        let Ok(bits) = bits.parse::<i64>() else {
            return;
        };
        self.armed &= !bits;
        for (sleeper, bit) in &self.sleepers {
            if bits & bit != 0 {
                sleeper.sleep(|sleep| sleep.put_to_rest(Instant::now()));
                sleeper.rung.notify_one();
            }
        }
    }
}
