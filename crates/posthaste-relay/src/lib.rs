//! Relay: sends claimed jobs to a destination and settles each by the answer.
//!
//! A relay is a [`Consumer`](posthaste::consumer::Consumer) of one queue. No transaction is open
//! while bytes travel, and each message has its own outcome. While a destination is down, jobs wait
//! and no attempt is counted.
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

mod message;

mod destination;

mod store;

mod engine;

mod route;

#[cfg(feature = "asynq")]
pub use destination::asynq::Asynq;
#[cfg(feature = "bullmq")]
pub use destination::bullmq::BullMq;
#[cfg(any(feature = "celery-rabbitmq", feature = "celery-redis"))]
pub use destination::celery::Celery;
#[cfg(feature = "kafka")]
pub use destination::kafka::Kafka;
#[cfg(feature = "nats")]
pub use destination::nats::Nats;
#[cfg(feature = "rabbitmq")]
pub use destination::rabbitmq::RabbitMq;
#[cfg(feature = "sidekiq")]
pub use destination::sidekiq::{Sidekiq, TimeUnit, ToggleOrCount};
#[cfg(feature = "smtp")]
pub use destination::smtp::Smtp;
#[cfg(feature = "webhook")]
pub use destination::webhook::{AddressPolicy, Webhook};

pub use destination::answer::Answer;
pub use destination::contract::{Destination, UnsafeSetting};
pub use destination::lines::Lines;
pub use destination::reason::{Failure, Reason};
pub use engine::builder::RelayBuilder;
pub use engine::options::{Ack, OnAmbiguous};
pub use engine::relay::Relay;
pub use engine::sender::{Outgoing, Sender};
pub use message::mapping::Mapping;
pub use message::template::Template;
pub use message::{Arguments, Message};
pub use route::Route;
pub use route::preview::preview;
pub use store::list_relays;
pub use store::status::{RelayReport, RelayState, RelayStatus};
