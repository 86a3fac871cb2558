//! RabbitMQ: messages as any consumer of AMQP 0-9-1 reads them.

use std::borrow::Cow;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use super::amqp::{Amqp, Letter, PERSISTENT, expiration, priority, short};
use super::destination::{Answer, Destination};
use super::message::Message;
use crate::error::Error;

/// An exchange of RabbitMQ, or a queue of it by way of the default exchange.
///
/// | of the message | comes |
/// |---|---|
/// | routing key | what the mapping says, the job's name unless it says something |
/// | exchange | the mapping's queue, else the destination's; the default one unless said otherwise, whose routing keys are names of queues |
/// | body | the payload; `content_type` is `application/json`, `content_encoding` is `utf-8` |
/// | `message_id` | the delivery id: for `posthaste.done`, or `posthaste.inbox` |
/// | `type` | the job's name |
/// | `timestamp` | when the job was enqueued |
/// | `priority` | 1 for a priority of -1, up to 255; 0 for all others |
/// | `expiration` | with [`expires`](Self::expires) the time until the job expires |
/// | headers | what the mapping says, and the trace context |
///
/// RabbitMQ drops no duplicates: an effect that must happen once is recorded in `posthaste.inbox` by the consumer.
///
/// Accepted is what RabbitMQ has confirmed and not returned. Messages are persistent: a durable queue has them on its disk by then, quorum queues on most of their disks.
/// A message for which there is no queue, or no exchange, waits as if it had failed, because whoever runs the queue may declare it yet; one that is too large for RabbitMQ is
/// refused for good. Where a full queue does not confirm, and while an alarm (disk, memory) blocks publishers, jobs wait and burn no attempt. Nothing is declared: queues and their
/// settings are the receiver's.
///
/// Messages of one batch are published in its order, and RabbitMQ keeps that within an exchange and a queue.
///
/// ```
/// use posthaste::relay::{Mapping, RabbitMq, Relay, Template};
/// # fn main() -> Result<(), posthaste::Error> {
/// let rabbitmq = RabbitMq::new("amqp://guest:guest@127.0.0.1:5672/mail")?.exchange("mails");
/// let mapping = Mapping::default().kind(Template::parse("mail.{kwargs.kind}")?);
/// let relay = Relay::to(rabbitmq).mapping(mapping).batch(100);
/// # Ok(()) }
/// ```
pub struct RabbitMq {
    amqp: Amqp,
    exchange: String,
    expires: bool,
}

impl RabbitMq {
    /// `amqp://user:password@host:port/virtual-host`, or `amqps://` for TLS, for which the program installs rustls' provider.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            amqp: Amqp::new(url)?,
            exchange: String::new(),
            expires: false,
        })
    }

    /// The exchange, where the mapping says none.
    pub fn exchange(self, exchange: impl Into<String>) -> Self {
        let exchange = exchange.into();
        Self { exchange, ..self }
    }

    /// Has RabbitMQ drop messages that nobody took before their job expires: by this machine's clock, so that one that is ahead loses what was still wanted. Without it the
    /// receiver decides. A time beyond 49 days is more than RabbitMQ takes, and is not said.
    pub fn expires(self) -> Self {
        let expires = true;
        Self { expires, ..self }
    }

    fn encode<'a>(&'a self, message: &'a Message, now: Timestamp) -> Result<Letter<'a>, Answer> {
        let exchange = message.queue.as_deref().unwrap_or(&self.exchange);
        short("the exchange's name", exchange)?;
        short("the routing key", &message.kind)?;
        let job = &message.job;
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            let value = AMQPValue::LongString(value.as_str().into());
            headers.insert(short("a header's name", name)?, value);
        }
        let enqueued_at = u64::try_from(job.enqueued_at.as_second()).unwrap_or_default();
        let mut properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_content_encoding("utf-8".into())
            .with_headers(headers)
            .with_delivery_mode(PERSISTENT)
            .with_priority(priority(job.priority))
            .with_message_id(message.id.to_string().into())
            .with_timestamp(enqueued_at)
            .with_type(short("the job's name", &job.name)?);
        if let Some(left) = expiration(job.expires_at, now).filter(|_| self.expires) {
            properties = properties.with_expiration(left.into());
        }
        Ok(Letter {
            exchange,
            routing_key: &message.kind,
            properties,
            body: Cow::Borrowed(message.body()),
        })
    }
}

impl Destination for RabbitMq {
    fn label(&self) -> String {
        format!("rabbitmq at {}", self.amqp.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let now = Timestamp::now();
            let letters = batch.iter().map(|message| self.encode(message, now));
            self.amqp.publish(letters.collect()).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.amqp.probe())
    }
}
