//! A worker whose jobs go to consumers instead of handlers: to relays, or to a sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::posthaste::consumer::{Consumer, Delivery};
use ::posthaste::{Config, Outcome, Worker, WorkerHandle};
use ::posthaste_relay::{
    AddressPolicy, Asynq, Mapping, RabbitMq, Relay, RelayBuilder, Sidekiq, Template, Webhook,
};
use anyhow::{Result, ensure};
use tokio_postgres::NoTls;

use super::crew::pool;
use crate::contestants::QUEUE;
use crate::contestants::receiver::{self, BATCHES, Receiver};
use crate::database::Database;

/// The number of concurrent requests to a webhook.
pub(crate) const REQUESTS: usize = 1_000;

/// A worker with a relay to a receiver, or with a sink.
pub(crate) struct Carrier {
    worker: WorkerHandle,
    began: Instant,
    carried: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Carrier {
    /// Starts one with a sink.
    pub(crate) async fn to_nobody(database: &Database) -> Result<Self> {
        let nobody = Arc::new(Nobody::default());
        let began = Instant::now();
        let worker = builder(database)?.consumer(QUEUE, Arc::clone(&nobody));
        Ok(Self {
            worker: worker.start().await?,
            began,
            carried: Box::new(move || nobody.0.load(Ordering::SeqCst)),
        })
    }

    /// Starts one with a relay to this receiver.
    pub(crate) async fn to(database: &Database, receiver: Receiver, url: &str) -> Result<Self> {
        Self::start(database, to(receiver, url)?, None).await
    }

    /// Starts one with a relay to a Redis, and another relay with a separate backlog whose Redis is
    /// at the other address.
    pub(crate) async fn beside(
        database: &Database,
        url: &str,
        neighbour: Option<(&str, &str)>,
    ) -> Result<Self> {
        let neighbour = match neighbour {
            Some((queue, url)) => Some((queue, Relay::to(Sidekiq::new(url)?).start().await?)),
            None => None,
        };
        Self::start(database, to(Receiver::Sidekiq, url)?, neighbour).await
    }

    /// Starts one with a relay to a webhook on this machine.
    pub(crate) async fn to_hook(database: &Database, url: &str) -> Result<Self> {
        let here = AddressPolicy::public().allow("127.0.0.1")?;
        let hook =
            Webhook::with_address_policy(reqwest::Client::builder(), url, here)?.requests(REQUESTS);
        // Twice as many as may be in flight: while some batches wait for their last answers, others
        // begin.
        let relay = Relay::to(hook).batch(50).concurrency(2 * REQUESTS / 50);
        Self::start(database, relay, None).await
    }

    async fn start(
        database: &Database,
        relay: RelayBuilder,
        neighbour: Option<(&str, Relay)>,
    ) -> Result<Self> {
        let relay = relay.start().await?;
        let began = Instant::now();
        let mut worker = builder(database)?.consumer(QUEUE, relay.clone());
        if let Some((queue, relay)) = neighbour {
            worker = worker.consumer(queue, relay);
        }
        Ok(Self {
            worker: worker.start().await?,
            began,
            carried: Box::new(move || relay.status().accepted),
        })
    }

    /// The time since its worker started, after its relays probed their destinations, which may
    /// take long.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until `jobs` jobs are at the destination.
    pub(crate) async fn reach(&self, jobs: u64, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        while (self.carried)() < jobs {
            let carried = (self.carried)();
            ensure!(begun.elapsed() < limit, "{carried} of {jobs} jobs went");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Stops after acknowledging what it has sent.
    pub(crate) async fn stop(self) -> Result<()> {
        Ok(self.worker.stop().await?)
    }
}

fn builder(database: &Database) -> Result<::posthaste::WorkerBuilder> {
    let address = database.config().clone();
    let config = Config {
        // Jobs in flight to a slow neighbour are not waited for.
        shutdown_grace: Duration::from_secs(1),
        ..Config::default()
    };
    let worker = Worker::builder(pool(address.clone())?).config(config);
    Ok(worker.notifier(address, NoTls))
}

fn to(receiver: Receiver, url: &str) -> Result<RelayBuilder> {
    let relay = match receiver {
        Receiver::Sidekiq => Relay::to(Sidekiq::new(url)?),
        Receiver::Asynq => Relay::to(Asynq::new(url)?),
        Receiver::RabbitMq => {
            let mapping = Mapping::default().kind(Template::text(receiver::BENCH));
            Relay::to(RabbitMq::new(url)?).mapping(mapping)
        }
    };
    Ok(relay.batch(receiver.batch()).concurrency(BATCHES))
}

/// Finishes all deliveries immediately, in any number.
#[derive(Debug, Default)]
struct Nobody(AtomicU64);

impl Consumer for Nobody {
    fn capacity(&self) -> usize {
        usize::MAX
    }
    fn consume(&self, claim: Vec<Delivery>) {
        let jobs = claim.len() as u64;
        let done = |one: Delivery| one.ticket.settle(Outcome::Done);
        claim.into_iter().for_each(done);
        self.0.fetch_add(jobs, Ordering::SeqCst);
    }
    fn give_back(&self) {}
    fn abort(&self) {}
}
