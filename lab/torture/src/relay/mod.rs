//! A relay process: three routes to different kinds of receivers.
//!
//! | queue | to | guarantee |
//! |---|---|---|
//! | `a` | Sidekiq's list in a Redis that persists data | done when it is accepted, in any order |
//! | `b` | asynq's list in a Redis that loses data | done when its receiver has confirmed it |
//! | `c` | a queue of RabbitMQ | done when it is accepted, in order |

mod faulty;

use std::time::Duration;

use clap::Args;
use posthaste::{Backoff, Worker};
use posthaste_relay::{Ack, Asynq, Mapping, RabbitMq, Relay, RelayBuilder, Sidekiq, Template};

use crate::bugs::Misbehavior;
use crate::worker::{begin, config, pool};
use faulty::FaultyDestination;

/// The queue of the ordered relay.
pub(crate) const ORDERED: &str = "c";
/// The queue whose receiver's server may lose all its data.
pub(crate) const CONFIRMED: &str = "b";
/// The queue of RabbitMQ for the messages of the ordered relay.
pub(crate) const RABBITMQ_QUEUE: &str = "jobs";
/// The header with the name of the process that sent a message.
pub(crate) const RELAY: &str = "relay";
/// The header with the database's ID of a job.
pub(crate) const JOB: &str = "job";

/// A prefix of the arguments for processes that send text which is not JSON: if it were pasted into
/// a receiver's format, it would end its arguments and choose another class.
pub(crate) const TEXT: &str = "0],\"class\":\"Other\",\"args\":[";

/// An effect that is not confirmed for this long is requested again.
const LEASE: Duration = Duration::from_secs(3);
/// The timeout for an answer of a receiver's server: long compared with the delays of a busy
/// machine.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Options of the relay process.
#[derive(Debug, Args)]
pub struct RelayOptions {
    /// URL of the database
    #[arg(long)]
    pub url: String,
    /// Name of the process in its messages
    #[arg(long)]
    pub name: String,
    /// URL of the Redis that keeps its data
    #[arg(long)]
    pub kept: String,
    /// URL of the Redis that loses its data
    #[arg(long)]
    pub forgetful: String,
    /// URL of RabbitMQ
    #[arg(long)]
    pub rabbitmq: String,
    /// Injected bug; see `bugs`
    #[arg(long, value_enum)]
    pub misbehavior: Option<Misbehavior>,
    /// Site of the process
    #[arg(long)]
    pub site: Option<String>,
}

/// Relays until a signal stops it.
pub async fn relay(options: RelayOptions) -> anyhow::Result<()> {
    let pool = pool(&options.url)?;
    let mut relays = Vec::new();
    for (queue, relay) in routes(&options)? {
        relays.push((queue, as_it_is_meant(relay, &options.name)?.start().await?));
    }
    let worker = begin(|| {
        let worker = Worker::builder(pool.clone()).config(config(options.site.as_ref()));
        let relays = relays.iter().cloned();
        relays.fold(worker, |worker, (queue, relay)| {
            worker.consumer(queue, relay)
        })
    });
    Ok(worker.await?.run_until_signal().await?)
}

fn routes(options: &RelayOptions) -> anyhow::Result<[(&'static str, RelayBuilder); 3]> {
    let misbehavior = options.misbehavior;
    let sidekiq = Sidekiq::new(&options.kept)?.queue("a");
    let asynq = Asynq::new(&options.forgetful)?.queue(CONFIRMED);
    let rabbitmq = RabbitMq::new(&options.rabbitmq)?;
    let confirmed = Relay::to(FaultyDestination::new(asynq, misbehavior));
    let confirmed = match misbehavior {
        Some(Misbehavior::StopsAtAcceptance) => confirmed.allow_unsafe("appendonly"),
        _ => confirmed.ack(Ack::Confirmed { lease: LEASE }),
    };
    let ordered = Relay::to(FaultyDestination::new(rabbitmq, misbehavior));
    let ordered = match misbehavior {
        Some(Misbehavior::SendsSideBySide) => ordered,
        _ => ordered.ordered(true),
    };
    Ok([
        ("a", Relay::to(FaultyDestination::new(sidekiq, misbehavior))),
        (CONFIRMED, confirmed),
        (ORDERED, ordered),
    ])
}

fn as_it_is_meant(relay: RelayBuilder, name: &str) -> anyhow::Result<RelayBuilder> {
    let mapping = Mapping::default()
        .kind(Template::text(RABBITMQ_QUEUE))
        .header(RELAY, Template::text(name))
        .header(JOB, Template::parse("{job_id}")?);
    let mapping = match sends_text(name) {
        true => mapping.payload(Template::parse(&format!("{TEXT}{{kwargs}}"))?),
        false => mapping,
    };
    let backoff = Backoff {
        base: Duration::from_millis(20),
        cap: Duration::from_millis(200),
    };
    Ok(relay
        .mapping(mapping)
        .backoff(backoff)
        .time_limit(TIME_LIMIT))
}

/// Whether a process sends text that is not JSON: every second one, by the sum of its name's bytes.
/// Names contain a place and the number of starts there.
fn sends_text(name: &str) -> bool {
    name.bytes().map(u32::from).sum::<u32>().is_multiple_of(2)
}
