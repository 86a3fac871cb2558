//! 4b. Relay: claimed jobs are sent to a destination, and settled by what it says.
//!
//! A relay is a [`Consumer`] of one queue. No transaction is open while bytes travel; each message has an outcome of its own; a destination that
//! is down costs nothing but the wait for it.
//!
//! ```no_run
//! # async fn example(pool: deadpool_postgres::Pool) -> Result<(), posthaste::Error> {
//! use posthaste::{Worker, relay::{Relay, Lines}};
//!
//! let relay = Relay::to(Lines::new(tokio::io::stdout())).start().await?;
//! let worker = Worker::builder(pool).consumer("audit", relay).start().await?;
//! worker.run_until_signal().await?;
//! # Ok(()) }
//! ```

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "asynq")]
mod asynq;
mod breaker;
mod builder;
#[cfg(feature = "bullmq")]
mod bullmq;
mod carry;
#[cfg(any(feature = "celery-rabbitmq", feature = "celery-redis"))]
mod celery;
mod destination;
#[cfg(any(feature = "celery-rabbitmq", feature = "redis"))]
#[cfg(test)]
mod golden;
mod health;
#[cfg(any(
    feature = "bullmq",
    feature = "celery-rabbitmq",
    feature = "celery-redis",
    feature = "sidekiq"
))]
mod json;
#[cfg(feature = "kafka")]
mod kafka;
pub(crate) mod keep;
#[cfg(any(feature = "smtp", feature = "webhook"))]
mod known;
mod lease;
mod line;
mod lines;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "nats"))]
mod link;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod outbox;
mod pack;
mod preview;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
mod reference;
mod route;
mod schedule;
#[cfg(feature = "sidekiq")]
mod sidekiq;
#[cfg(feature = "smtp")]
mod smtp;
mod status;
mod template;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod together;
#[cfg(feature = "webhook")]
mod webhook;
#[cfg(any(
    feature = "asynq",
    feature = "bullmq",
    feature = "celery-rabbitmq",
    feature = "celery-redis",
    feature = "nats"
))]
mod window;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::consumer::{Consumer, Delivery};
use crate::job::JobId;
use crate::retry::Backoff;

#[cfg(feature = "asynq")]
pub use asynq::Asynq;
pub use builder::RelayBuilder;
#[cfg(feature = "bullmq")]
pub use bullmq::BullMq;
#[cfg(any(feature = "celery-rabbitmq", feature = "celery-redis"))]
pub use celery::Celery;
pub use destination::{Answer, Destination, Weakness};
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
pub use lines::Lines;
pub use message::{Arguments, Mapping, Message};
#[cfg(feature = "nats")]
pub use nats::Nats;
pub use preview::preview;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMq;
pub use route::Route;
#[cfg(feature = "sidekiq")]
pub use sidekiq::{Sidekiq, Times};
#[cfg(feature = "smtp")]
pub use smtp::Smtp;
pub use status::{RelayReport, RelayState, RelayStatus, relays};
pub use template::Template;
#[cfg(feature = "webhook")]
pub use webhook::{Reach, Webhook};

use lease::Lease;
use line::Line;
use reference::References;

/// When a job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Strength {
    /// The destination has confirmed that it has the message.
    #[default]
    Accepted,
    /// The receiver has recorded its effect: it called `posthaste.done(delivery_id)`, or `posthaste.receive(delivery_id)`, which does it too. Until then the job is held; what
    /// is not confirmed in time is sent again with the same id, which burns an attempt. Losing everything that the destination held costs
    /// latency only.
    Done {
        /// How long to wait for the confirmation.
        lease: Duration,
    },
}

/// Who sends, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mode {
    /// Many relays at once, several batches each; no order, except among jobs with the same ordering key.
    #[default]
    Outbox,
    /// One relay at a time, over all processes, and one batch at a time, in the lane's order: transactions as they became visible, ids within one. While
    /// the destination is down the batch is kept in hand, so that nothing overtakes it. A relay that stops sends what it has in hand first, as far as
    /// the grace period goes; what it gives back after that comes behind what waits, as does a message that was refused for now.
    Drain,
}

/// What becomes of a message of which nobody knows whether a destination that cannot tell duplicates has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Unknown {
    /// It is sent again, which burns an attempt: twice rather than never.
    #[default]
    Resend,
    /// It is kept as discarded, with what was seen: never rather than twice.
    Discard,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    mapping: Mapping,
    batch: usize,
    concurrency: usize,
    time_limit: Duration,
    strength: Strength,
    mode: Mode,
    unknown: Unknown,
    backoff: Backoff,
    longest_outage: Duration,
}

/// Sends the jobs of a queue to a destination: a [`Consumer`], for [`WorkerBuilder::consumer`](crate::WorkerBuilder::consumer).
#[derive(Clone)]
pub struct Relay {
    shared: Arc<Shared>,
}

impl Relay {
    /// Begins to describe a relay to this destination.
    pub fn to(destination: impl Destination) -> RelayBuilder {
        Self::to_any(Arc::new(destination))
    }

    /// As [`to`](Self::to), for a destination that was chosen at run time.
    pub fn to_any(destination: Arc<dyn Destination>) -> RelayBuilder {
        RelayBuilder::new(destination)
    }

    /// How it goes.
    pub fn status(&self) -> RelayStatus {
        self.shared.status().clone()
    }

    /// Completes when the destination will never take anything again ([`Destination::is_gone`]): nothing is left to this relay but to be stopped. No attempt is burnt meanwhile.
    pub async fn gone(&self) {
        self.shared.gone.cancelled().await;
    }

    /// What it tells when there is room again, which is after the outcomes went out.
    pub(crate) fn room(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.room)
    }

    /// Whether a job may be sent now: in drain mode another relay may be at it.
    pub(crate) fn may_send(&self) -> bool {
        self.shared.lease().may_send(Instant::now())
    }
}

/// What the consumer and its tasks share.
pub(crate) struct Shared {
    name: String,
    destination: Arc<dyn Destination>,
    options: Options,
    allowed: Vec<String>,
    references: Option<References>,
    line: Mutex<Line>,
    lease: Mutex<Lease>,
    arrived: Notify,
    /// Told when there is room again.
    room: Arc<Notify>,
    /// Nothing is to be begun any more.
    stopping: CancellationToken,
    /// What is under way ends now.
    aborted: CancellationToken,
    /// The destination will never take anything again.
    gone: CancellationToken,
    status: Mutex<RelayStatus>,
}

impl Shared {
    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> std::sync::MutexGuard<'_, RelayStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told when nothing more is to be begun: in drain mode what is in hand is sent first, because what is given back loses its place. Where nothing can be sent any more it loses it anyway.
    fn over(&self) -> &CancellationToken {
        match self.options.mode {
            Mode::Drain if !self.gone.is_cancelled() => &self.aborted,
            Mode::Drain | Mode::Outbox => &self.stopping,
        }
    }
}

impl Consumer for Relay {
    fn capacity(&self) -> usize {
        let options = &self.shared.options;
        if self.shared.stopping.is_cancelled() || !self.shared.lease().may_claim(Instant::now()) {
            return 0;
        }
        let under_way = options.batch.saturating_mul(options.concurrency);
        self.shared.line().room(under_way)
    }

    fn consume(&self, claim: Vec<Delivery>) {
        self.shared.line().join(claim);
        self.shared.arrived.notify_one();
        if self.shared.over().is_cancelled() {
            self.shared.give_back_waiting();
        }
    }

    fn give_back(&self) {
        self.shared.stopping.cancel();
        if self.shared.over().is_cancelled() {
            self.shared.give_back_waiting();
        }
    }

    fn abort(&self) {
        self.shared.stopping.cancel();
        self.shared.aborted.cancel();
        self.shared.give_back_waiting();
    }

    fn cancel(&self, jobs: &[JobId]) {
        let removed = self.shared.line().remove(jobs);
        removed.into_iter().for_each(|one| one.ticket.cancelled());
    }

    fn limit(&self) -> Option<Duration> {
        Some(self.shared.options.time_limit)
    }

    fn backoff(&self) -> Backoff {
        self.shared.options.backoff
    }

    fn as_relay(&self) -> Option<&Relay> {
        Some(self)
    }
}

impl Shared {
    fn give_back_waiting(&self) {
        let waiting = self.line().clear();
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }
}
