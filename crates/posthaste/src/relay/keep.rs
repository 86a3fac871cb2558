//! What a worker does for its relays beside sending: keeps the leases of drains, and tells the database how they go. On the engine's thread.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::lease::Lease;
use super::{Mode, Relay, RelayState, RelayStatus};
use crate::engine::{Engine, QueueState};
use crate::error::Error;
use crate::store::relay as store;

/// What has changed is told this often at most, and as soon as this when the state is another one.
const TELL_AFTER: Duration = Duration::from_secs(5);
/// What has not is told this often, so that it is among what is kept.
const TELL_ALWAYS: Duration = Duration::from_secs(30);
/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// How often is asked for a lease that another one has.
const ASK: Duration = Duration::from_secs(2);

/// Runs until the engine has stopped.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut kept: Vec<Kept<'_>> = engine.queues.iter().filter_map(Kept::new).collect();
    // A drain is taken over by whoever sees that its relay is dead, and that is said after this time.
    let lease = engine.config.rescue_after;
    let pause = if kept.is_empty() {
        Duration::MAX
    } else {
        LOOK.min(lease / 8)
    };
    while !engine.stopped.is_cancelled() {
        for one in &mut kept {
            one.drain(&engine, lease).await;
            one.tell(&engine).await;
        }
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = engine.stopped.cancelled() => {} }
    }
}

/// Tells once more, at the end.
pub(crate) async fn tell(engine: &Engine) {
    for queue in &engine.queues {
        if let Some(mut kept) = Kept::new(queue) {
            kept.tell(engine).await;
        }
    }
}

/// A relay, and what the database knows of it.
struct Kept<'a> {
    queue: &'a QueueState,
    relay: &'a Relay,
    /// When the lease is to be asked for.
    ask_at: Instant,
    told: Option<(Instant, RelayState, RelayStatus)>,
}

impl<'a> Kept<'a> {
    fn new(queue: &'a Arc<QueueState>) -> Option<Self> {
        let relay = queue.consumer.as_relay()?;
        Some(Self {
            queue,
            relay,
            ask_at: Instant::now(),
            told: None,
        })
    }

    /// Takes or keeps the lease, if one is needed. While the dead one's jobs come first it is asked each time whether any are left.
    async fn drain(&mut self, engine: &Engine, lease: Duration) {
        let shared = &self.relay.shared;
        let now = Instant::now();
        if shared.options.mode == Mode::Outbox
            || now < self.ask_at && !shared.lease().waits_for_suspects()
        {
            return;
        }
        self.ask_at = now + lease / 4;
        let held = match ask(engine, &self.queue.name, lease).await {
            Ok(Some(suspects)) => Lease::Held {
                until: now + lease,
                suspects: suspects > 0,
            },
            Ok(None) => {
                self.ask_at = now + ASK.min(lease / 4);
                Lease::Missing
            }
            Err(error) => {
                // It lasts as long as it was given.
                tracing::debug!(%error, queue = &*self.queue.name, "the lease of a drain could not be asked for");
                return;
            }
        };
        let before = std::mem::replace(
            &mut *shared.lease.lock().unwrap_or_else(PoisonError::into_inner),
            held,
        );
        if !before.may_send(now) && held.may_send(now) {
            tracing::info!(queue = &*self.queue.name, "drains this queue from now on");
            self.queue.room.notify_one();
        }
    }

    async fn tell(&mut self, engine: &Engine) {
        let state = self.state();
        let status = self.relay.status();
        let is_due = match &self.told {
            None => true,
            Some((at, told, _)) if *told != state || at.elapsed() >= TELL_ALWAYS => true,
            Some((at, _, told)) => at.elapsed() >= TELL_AFTER && *told != status,
        };
        if !is_due {
            return;
        }
        let told = store::Told {
            queue: &self.queue.name,
            route: &self.relay.shared.name,
            destination: &self.relay.shared.destination.label(),
            state,
            status: &status,
        };
        match say(engine, &told).await {
            Ok(()) => self.told = Some((Instant::now(), state, status)),
            Err(error) => {
                tracing::debug!(%error, "how a relay goes could not be told");
            }
        }
    }

    fn state(&self) -> RelayState {
        if !self.relay.may_send() {
            RelayState::Standby
        } else if self.relay.status().down_since.is_some() {
            RelayState::Down
        } else {
            RelayState::Up
        }
    }
}

async fn ask(engine: &Engine, queue: &str, lease: Duration) -> Result<Option<i64>, Error> {
    let worker = engine.worker().await?;
    store::drain(&engine.relays, queue, worker.id, lease).await
}

async fn say(engine: &Engine, told: &store::Told<'_>) -> Result<(), Error> {
    let worker = engine.worker().await?;
    store::tell(&engine.relays, worker.id, told).await
}
