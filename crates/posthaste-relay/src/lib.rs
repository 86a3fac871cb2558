//! Relay: claimed jobs are sent to a destination, and settled by what it says.
//!
//! A relay is a [`Consumer`] of one queue. No transaction is open while bytes travel; each message
//! has an outcome of its own; a destination that is down costs nothing but the wait for it.
//!
//! ```no_run
//! # async fn example(pool: deadpool_postgres::Pool) -> Result<(), posthaste::Error> {
//! use posthaste::Worker;
//! use posthaste_relay::{Lines, Relay};
//!
//! let relay = Relay::to(Lines::new(tokio::io::stdout())).start().await?;
//! let worker = Worker::builder(pool).consumer("audit", relay).start().await?;
//! worker.run_until_signal().await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "asynq")]
mod asynq;
mod buffer;
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
mod json;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(any(feature = "smtp", feature = "webhook"))]
mod known;
mod lease;
mod lines;
mod mapping;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod outbox;
mod pack;
mod preview;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod readers;
mod reason;
#[cfg(feature = "redis")]
mod redis;
mod reference;
mod repeats;
mod route;
mod schedule;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "nats"))]
mod shared_connection;
#[cfg(feature = "sidekiq")]
mod sidekiq;
#[cfg(feature = "smtp")]
mod smtp;
mod spans;
mod status;
mod store;
mod tasks;
mod template;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod together;
mod trace;
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

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use posthaste::consumer::{Attendant, Consumer, Delivery};
use posthaste::{Backoff, JobId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "asynq")]
pub use asynq::Asynq;
pub use builder::RelayBuilder;
#[cfg(feature = "bullmq")]
pub use bullmq::BullMq;
#[cfg(any(feature = "celery-rabbitmq", feature = "celery-redis"))]
pub use celery::Celery;
pub use destination::{Answer, Destination, UnsafeSetting};
#[cfg(feature = "kafka")]
pub use kafka::Kafka;
pub use lines::Lines;
pub use mapping::Mapping;
pub use message::{Arguments, Message};
#[cfg(feature = "nats")]
pub use nats::Nats;
pub use preview::preview;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::RabbitMq;
pub use reason::{Failure, Reason};
pub use route::Route;
#[cfg(feature = "sidekiq")]
pub use sidekiq::{HowMany, Sidekiq, Times};
#[cfg(feature = "smtp")]
pub use smtp::Smtp;
pub use status::{RelayReport, RelayState, RelayStatus, relays};
pub use template::Template;
#[cfg(feature = "webhook")]
pub use webhook::{Reach, Webhook};

use buffer::SendBuffer;
use lease::Lease;
use readers::SentTo;
use reference::References;
use repeats::Repeats;

/// When a job is done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Ack {
    /// The destination has confirmed that it has the message.
    #[default]
    Accepted,
    /// The receiver has recorded its effect: it called `posthaste.confirm(delivery_id)`, or
    /// `posthaste.receive(delivery_id)`, which does it too. Until then the job is held; what is not
    /// confirmed in time is sent again with the same id, which counts as an attempt. Losing
    /// everything that the destination held costs latency only.
    Confirmed {
        /// How long to wait for the confirmation.
        lease: Duration,
    },
}

/// What becomes of a message of which nobody knows whether a destination that cannot tell
/// duplicates has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum OnAmbiguous {
    /// It is sent again, which counts as an attempt: twice rather than never.
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
    ack: Ack,
    ordered: bool,
    on_ambiguous: OnAmbiguous,
    backoff: Backoff,
    longest_outage: Duration,
}

/// Sends the jobs of a queue to a destination: a [`Consumer`], for
/// [`WorkerBuilder::consumer`](posthaste::WorkerBuilder::consumer).
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

    /// Completes when the destination will never take anything again ([`Destination::is_gone`]):
    /// nothing is left to this relay but to be stopped. No attempt is counted meanwhile.
    pub async fn gone(&self) {
        self.shared.gone.cancelled().await;
    }

    /// Why its destination was refused when it was started, if it was and
    /// [waits](RelayBuilder::wait_if_unfit) for that to be mended.
    pub fn unfit(&self) -> Option<&str> {
        self.shared.unfit.get().map(String::as_str)
    }
}

/// What the consumer and its tasks share.
pub(crate) struct Shared {
    name: String,
    destination: Arc<dyn Destination>,
    options: Options,
    allowed: Vec<String>,
    references: Option<References>,
    buffer: Mutex<SendBuffer>,
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
    /// Why nothing could be sent to it when it was started.
    unfit: OnceLock<String>,
    status: Mutex<RelayStatus>,
    sent_to: Mutex<SentTo>,
    /// Why messages were not taken, as the log has it.
    said: Mutex<Repeats>,
}

impl Shared {
    fn buffer(&self) -> std::sync::MutexGuard<'_, SendBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> std::sync::MutexGuard<'_, RelayStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent_to(&self) -> std::sync::MutexGuard<'_, SentTo> {
        self.sent_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Repeats> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease(&self) -> Lease {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a job may be sent now: if the relay is ordered, another one may be sending.
    fn may_send(&self) -> bool {
        self.lease().may_send(Instant::now())
    }

    /// Nothing more is sent or claimed until the lease was asked for again.
    fn doubt_lease(&self) {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.end(Instant::now());
    }

    /// From now on the lease is this one; what is in hand and another's is given back. Returns the
    /// one before.
    fn set_lease(&self, lease: Lease) -> Lease {
        let mut held = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *held, lease);
        drop(held);
        let is_lost = |one: &Delivery| lease.has_lost(one.ticket.worker());
        let lost = self.buffer().remove(is_lost);
        lost.into_iter().for_each(|one| one.ticket.give_back());
        // The one that waits for the lease looks again.
        self.arrived.notify_one();
        self.room.notify_one();
        before
    }

    /// Told when nothing more is to be begun: an ordered relay sends what is in hand first, because
    /// what is given back loses its place. Where nothing can be sent any more it loses it anyway.
    fn over(&self) -> &CancellationToken {
        match self.options.ordered && !self.gone.is_cancelled() {
            true => &self.aborted,
            false => &self.stopping,
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
        self.shared.buffer().room(under_way)
    }

    fn consume(&self, claim: Vec<Delivery>) {
        self.shared.buffer().join(claim);
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
        let is_cancelled = |one: &Delivery| jobs.contains(&one.job.id);
        let removed = self.shared.buffer().remove(is_cancelled);
        removed.into_iter().for_each(|one| one.ticket.cancel());
    }

    fn limit(&self) -> Option<Duration> {
        Some(self.shared.options.time_limit)
    }

    fn backoff(&self) -> Backoff {
        self.shared.options.backoff
    }

    /// Told after the outcomes went out.
    fn room(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.shared.room))
    }

    fn is_ordered(&self) -> bool {
        self.shared.options.ordered
    }

    /// They are for the relay that has the lease.
    fn takes_quarantined(&self) -> bool {
        self.shared.may_send()
    }

    fn worker_lost(&self) {
        self.shared.doubt_lease();
    }

    fn attend(&self, worker: Attendant) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(tasks::run(Arc::clone(&self.shared), worker)))
    }
}

impl Shared {
    fn give_back_waiting(&self) {
        let waiting = self.buffer().clear();
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }
}
