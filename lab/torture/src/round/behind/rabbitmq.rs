//! A queue of RabbitMQ whose consumer acknowledges nothing: after each reconnect it gets all
//! messages again in their order.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use tokio::time::timeout;

use super::reader::{Source, arrived, payload, unpacked};
use crate::history::Arrived;
use crate::relay::{JOB, RABBITMQ_QUEUE, RELAY};

/// The timeout for an answer of the server, after which it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Without a message for this long, the consumer has received everything.
const MOMENT: Duration = Duration::from_millis(50);
/// The number of messages that are read at a time.
const MANY: usize = 200;
/// The ID of the reader's own last message.
const END: &str = "the end";

pub(super) struct Queue {
    url: String,
    open: Option<Open>,
    /// The IDs of all messages that were read, in their order.
    read: Vec<String>,
    has_marked: bool,
    is_over: bool,
}

/// A consumer from the beginning of the queue.
struct Open {
    _connection: Connection,
    channel: Channel,
    consumer: Consumer,
    /// The number of messages that it has received.
    at: usize,
}

impl Queue {
    /// Declares a durable queue.
    pub(super) async fn declare(url: String) -> anyhow::Result<Self> {
        let (_connection, channel) = connect(&url).await?;
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let declared = channel.queue_declare(RABBITMQ_QUEUE.into(), options, FieldTable::default());
        declared.await?;
        Ok(Self {
            url,
            open: None,
            read: Vec::new(),
            has_marked: false,
            is_over: false,
        })
    }

    async fn open(&mut self) -> anyhow::Result<&mut Open> {
        if self.open.is_none() {
            self.open = Some(timeout(PATIENCE, Open::new(&self.url)).await??);
        }
        self.open.as_mut().context("a consumer")
    }

    /// Returns messages since the last call, up to this many; `None` if the server is unavailable.
    async fn more(&mut self) -> anyhow::Result<Option<Vec<Arrived>>> {
        let mut all = Vec::new();
        while all.len() < MANY && !self.is_over {
            let Ok(open) = self.open().await else {
                return Ok(Some(all).filter(|all| !all.is_empty()));
            };
            let Ok(next) = timeout(MOMENT, open.consumer.next()).await else {
                break;
            };
            let Some(Ok(delivery)) = next else {
                self.open = None;
                continue;
            };
            let place = open.at;
            open.at += 1;
            let id = delivery.properties.message_id().clone();
            let id = id.map_or_else(String::new, |id| id.to_string());
            match self.read.get(place) {
                Some(known) => ensure!(
                    *known == id,
                    "RabbitMQ gave {id} where it had given {known}: it has lost or moved something"
                ),
                None if id == END => self.is_over = true,
                None => {
                    all.push(understand(&delivery, &id)?);
                    self.read.push(id);
                }
            }
        }
        Ok(Some(all))
    }

    /// Publishes the end mark after all messages, once or, if the answer was lost, twice.
    async fn mark(&mut self) -> anyhow::Result<()> {
        if self.has_marked {
            return Ok(());
        }
        let channel = self.open().await?.channel.clone();
        let properties = BasicProperties::default().with_message_id(END.into());
        let options = BasicPublishOptions::default();
        let queue = RABBITMQ_QUEUE.into();
        let published = channel.basic_publish("".into(), queue, options, b"", properties);
        published.await?.await?;
        self.has_marked = true;
        Ok(())
    }
}

impl Source for Queue {
    const PAUSE: Duration = Duration::from_millis(10);

    async fn look(&mut self, is_last: bool) -> anyhow::Result<Option<Vec<Arrived>>> {
        if is_last && self.mark().await.is_err() {
            self.open = None;
            return Ok(None);
        }
        let more = self.more().await?;
        // Only the end mark proves that no message follows.
        Ok(more.filter(|more| !is_last || self.is_over || !more.is_empty()))
    }
}

impl Open {
    async fn new(url: &str) -> anyhow::Result<Self> {
        let (connection, channel) = connect(url).await?;
        let options = BasicConsumeOptions::default();
        let (queue, tag) = (RABBITMQ_QUEUE.into(), "reader".into());
        let consumer = channel.basic_consume(queue, tag, options, FieldTable::default());
        Ok(Self {
            consumer: consumer.await?,
            _connection: connection,
            channel,
            at: 0,
        })
    }
}

async fn connect(url: &str) -> anyhow::Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default());
    let connection = timeout(PATIENCE, connection).await??;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

fn understand(delivery: &Delivery, id: &str) -> anyhow::Result<Arrived> {
    let headers = delivery.properties.headers().clone().unwrap_or_default();
    let header = |name: &str| match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        _ => String::new(),
    };
    let args = unpacked(payload(&delivery.data))?;
    let life = RABBITMQ_QUEUE;
    arrived(args, id, &header(RELAY), &header(JOB), life)
}
