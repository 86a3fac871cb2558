//! The receivers of the bar `relay`: the servers of popular worker libraries.

mod bare;

use std::time::Duration;

use ::posthaste_testkit::receivers::{RabbitMq, Redis};
use anyhow::Result;
use lapin::options::{ConfirmSelectOptions, QueueDeclareOptions, QueuePurgeOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

/// The name of RabbitMQ's queue and virtual host.
pub(crate) const BENCH: &str = "bench";
/// The number of batches that the relay and the bare client have in flight.
pub(crate) const BATCHES: usize = 4;

/// All receivers.
pub(crate) const RECEIVERS: [Receiver; 3] =
    [Receiver::Sidekiq, Receiver::Asynq, Receiver::RabbitMq];

/// A server of a popular worker library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Receiver {
    Sidekiq,
    Asynq,
    RabbitMq,
}

impl Receiver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sidekiq => "sidekiq",
            Self::Asynq => "asynq",
            Self::RabbitMq => "rabbitmq",
        }
    }

    /// The number of messages that both send together.
    pub(crate) fn batch(self) -> usize {
        match self {
            // Room for whole claims, so that the next one is in flight while the last is delivered.
            Self::Sidekiq => 2_500,
            // Jobs that are claimed together should be accepted within the time in which they are
            // acknowledged together.
            Self::Asynq => 250,
            Self::RabbitMq => 200,
        }
    }

    /// Starts a separate server.
    pub(crate) async fn start(self) -> Result<Server> {
        if self == Self::RabbitMq {
            let server = Box::new(RabbitMq::start()?);
            let channel = rabbitmq(&server.url(BENCH)?).await?;
            return Ok(Server::RabbitMq(server, channel));
        }
        let server = Redis::start(&[("appendonly", "yes")])?;
        let client = redis::Client::open(server.url())?;
        // Without a timeout: a thousand script calls may take long.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let connection = connection.await?;
        Ok(Server::Redis(self, server, connection))
    }
}

async fn rabbitmq(url: &str) -> Result<Channel> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    // The connection lives as long as its channel.
    let channel = connection.create_channel().await?;
    declare(&channel, false).await?;
    let options = ConfirmSelectOptions::default();
    channel.confirm_select(options).await?;
    Ok(channel)
}

/// Declares the queue, or only reads its number of messages.
async fn declare(channel: &Channel, passive: bool) -> Result<u64> {
    let options = QueueDeclareOptions {
        durable: true,
        passive,
        ..QueueDeclareOptions::default()
    };
    let queue = channel.queue_declare(BENCH.into(), options, FieldTable::default());
    Ok(queue.await?.message_count().into())
}

/// A running receiver with a connection to it.
pub(crate) enum Server {
    Redis(Receiver, Redis, MultiplexedConnection),
    RabbitMq(Box<RabbitMq>, Channel),
}

impl Server {
    pub(crate) fn url(&self) -> Result<String> {
        match self {
            Self::Redis(_, server, _) => Ok(server.url()),
            Self::RabbitMq(server, _) => server.url(BENCH),
        }
    }

    /// Sends as many messages as there are jobs, with the same bytes as the relay's, by the client
    /// alone; they are created before.
    pub(crate) async fn send_bare(&self, jobs: u64) -> Result<Duration> {
        match self {
            Self::Redis(Receiver::Asynq, _, connection) => bare::asynq(connection, jobs).await,
            Self::Redis(_, _, connection) => bare::sidekiq(connection, jobs).await,
            Self::RabbitMq(_, channel) => bare::rabbitmq(channel, jobs).await,
        }
    }

    /// Deletes all messages.
    pub(crate) async fn empty(&self) -> Result<()> {
        match self {
            Self::Redis(_, _, connection) => {
                let mut connection = connection.clone();
                redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
            }
            Self::RabbitMq(_, channel) => {
                let options = QueuePurgeOptions::default();
                channel.queue_purge(BENCH.into(), options).await?;
            }
        }
        Ok(())
    }

    /// The number of its messages.
    pub(crate) async fn received(&self) -> Result<u64> {
        match self {
            Self::Redis(receiver, _, connection) => {
                let list = match receiver {
                    Receiver::Asynq => bare::PENDING,
                    _ => bare::LIST,
                };
                let mut connection = connection.clone();
                let mut length = redis::cmd("LLEN");
                Ok(length.arg(list).query_async(&mut connection).await?)
            }
            Self::RabbitMq(_, channel) => declare(channel, true).await,
        }
    }
}
