//! The receivers of relays: their servers, a link from each relay to each of them, and a reader of
//! each queue.

mod faults;
mod rabbitmq;
mod reader;
mod redis;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use posthaste_testkit::Proxy;
use posthaste_testkit::receivers::{RabbitMq, Redis};
use tokio::task::block_in_place;
use tokio_postgres::Client;

use super::progress::Progress;
use super::stage::WORKERS;
use crate::history::log::Log;
use crate::relay::{CONFIRMED, ORDERED};
use rabbitmq::Queue;
use reader::Readers;
use redis::{List, Shape};

/// Settings with which Redis keeps acknowledged data when it is killed.
const KEEPS: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "everysec")];
/// RabbitMQ's virtual host.
const VHOST: &str = "torture";

pub(super) struct Behind {
    kept: Redis,
    forgetful: Redis,
    rabbitmq: RabbitMq,
    /// The links of each relay, in the order of the servers.
    links: Vec<[Proxy; 3]>,
    readers: Readers,
}

impl Behind {
    /// Starts the servers, and readers that write into this folder; one of them confirms through
    /// this client what it reads.
    pub(super) async fn set(
        folder: &Path,
        progress: &Arc<Progress>,
        client: Client,
    ) -> anyhow::Result<Self> {
        let (kept, forgetful, rabbitmq) = block_in_place(|| {
            let rabbitmq = RabbitMq::start()?;
            anyhow::Ok((Redis::start(&KEEPS)?, Redis::start(&[])?, rabbitmq))
        })?;
        let url = block_in_place(|| rabbitmq.url(VHOST))?;
        let queue = Queue::declare(url).await?;
        // A queue that is lost in a kill would not be the relay's fault.
        block_in_place(|| rabbitmq.keep_declarations())?;
        let mut links = Vec::new();
        for _ in 0..WORKERS {
            let mut of_one = Vec::new();
            for port in [kept.port(), forgetful.port(), rabbitmq.port()] {
                of_one.push(Proxy::start_raw(([127, 0, 0, 1], port).into()).await?);
            }
            let of_one = of_one.try_into();
            links.push(of_one.map_err(|_| anyhow::anyhow!("three links each"))?);
        }
        let log = |queue: &str| Log::open(&folder.join(format!("s-{queue}.log")));
        let mut readers = Readers::new(Arc::clone(progress));
        readers.read(List::of(Shape::Sidekiq, "a", &kept.url())?, log("a")?, None);
        readers.read(queue, log(ORDERED)?, None);
        let asynq = List::of(Shape::Asynq, CONFIRMED, &forgetful.url())?;
        readers.read(asynq, log(CONFIRMED)?, Some(client));
        Ok(Self {
            kept,
            forgetful,
            rabbitmq,
            links,
            readers,
        })
    }

    /// Adds the options of a relay in this place.
    pub(super) fn tell(&self, place: usize, command: &mut Command) {
        let [kept, forgetful, rabbitmq] = &self.links[place];
        for (option, url) in [
            ("--kept", format!("redis://{}/0", kept.address())),
            ("--forgetful", format!("redis://{}/0", forgetful.address())),
            (
                "--rabbitmq",
                format!("amqp://guest:guest@{}/{VHOST}", rabbitmq.address()),
            ),
        ] {
            command.args([option, &url]);
        }
    }

    /// Restores all links.
    pub(super) async fn restore(&self) -> anyhow::Result<()> {
        for link in self.links.iter().flatten() {
            link.restore().await?;
            link.reset();
        }
        Ok(())
    }

    /// Reads all queues to their ends, after all relays have stopped.
    pub(super) async fn finish(&mut self) -> anyhow::Result<()> {
        self.readers.finish().await
    }
}
