//! A relay process: three routes, each to a receiver of another kind.
//!
//! | queue | to | promise |
//! |---|---|---|
//! | `a` | Sidekiq's list in a Redis that keeps what it answers for | done when it is accepted, in any order |
//! | `b` | asynq's list in a Redis that forgets | done when its receiver has confirmed it, whatever Redis forgets |
//! | `c` | a queue of RabbitMQ | done when it is accepted, in order |

mod bent;

use std::time::Duration;

use clap::Args;
use posthaste::relay::{
    Asynq, Mapping, Mode, RabbitMq, Relay, RelayBuilder, Sidekiq, Strength, Template,
};
use posthaste::{Backoff, Worker};

use crate::bugs::Habit;
use crate::worker::{begin, config, pool};
use bent::Bent;

/// The queue of the drain.
pub(crate) const DRAIN: &str = "c";
/// The queue whose receiver's server may forget everything.
pub(crate) const CONFIRMED: &str = "b";
/// Where RabbitMQ puts what the drain sends.
pub(crate) const RABBITMQ_QUEUE: &str = "jobs";
/// The header that says which process sent a message.
pub(crate) const RELAY: &str = "relay";
/// The header with the database's number of a job.
pub(crate) const JOB: &str = "job";

/// An effect that is not confirmed for so long is asked for again.
const LEASE: Duration = Duration::from_secs(3);
/// A receiver's server that does not answer for so long is in doubt: long beside what a busy machine takes.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Options of the relay process.
#[derive(Debug, Args)]
pub struct RelayOptions {
    /// The database.
    #[arg(long)]
    pub url: String,
    /// What it is called in what it sends.
    #[arg(long)]
    pub name: String,
    /// The Redis that keeps.
    #[arg(long)]
    pub kept: String,
    /// The Redis that forgets.
    #[arg(long)]
    pub forgetful: String,
    /// The RabbitMQ.
    #[arg(long)]
    pub rabbitmq: String,
    /// A bad habit; see `bugs`.
    #[arg(long, value_enum)]
    pub habit: Option<Habit>,
}

/// Relays until it is told to stop.
pub async fn relay(options: RelayOptions) -> anyhow::Result<()> {
    let pool = pool(&options.url)?;
    let mut relays = Vec::new();
    for (queue, relay) in routes(&options)? {
        relays.push((queue, as_it_is_meant(relay, &options.name)?.start().await?));
    }
    let worker = begin(|| {
        let worker = Worker::builder(pool.clone()).config(config());
        let relays = relays.iter().cloned();
        relays.fold(worker, |worker, (queue, relay)| {
            worker.consumer(queue, relay)
        })
    });
    Ok(worker.await?.run_until_signal().await?)
}

fn routes(options: &RelayOptions) -> anyhow::Result<[(&'static str, RelayBuilder); 3]> {
    let habit = options.habit;
    let sidekiq = Sidekiq::new(&options.kept)?.queue("a");
    let asynq = Asynq::new(&options.forgetful)?.queue(CONFIRMED);
    let rabbitmq = RabbitMq::new(&options.rabbitmq)?;
    let confirmed = Relay::to(Bent::new(asynq, habit));
    let confirmed = match habit {
        Some(Habit::StopsAtAcceptance) => confirmed.allow("appendonly"),
        _ => confirmed.strength(Strength::Done { lease: LEASE }),
    };
    let drain = Relay::to(Bent::new(rabbitmq, habit));
    let drain = match habit {
        Some(Habit::DrainsSideBySide) => drain,
        _ => drain.mode(Mode::Drain),
    };
    Ok([
        ("a", Relay::to(Bent::new(sidekiq, habit))),
        (CONFIRMED, confirmed),
        (DRAIN, drain),
    ])
}

fn as_it_is_meant(relay: RelayBuilder, name: &str) -> anyhow::Result<RelayBuilder> {
    let mapping = Mapping::default()
        .kind(Template::text(RABBITMQ_QUEUE))
        .header(RELAY, Template::text(name))
        .header(JOB, Template::parse("{job_id}")?);
    let backoff = Backoff {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(200),
    };
    Ok(relay
        .mapping(mapping)
        .backoff(backoff)
        .time_limit(TIME_LIMIT))
}
