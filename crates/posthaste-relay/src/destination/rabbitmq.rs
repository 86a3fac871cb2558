//! RabbitMQ: messages as any consumer of AMQP 0-9-1 reads them.

use std::borrow::Cow;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use posthaste::Error;

use crate::destination::amqp::{
    Amqp, PERSISTENT_MODE, Publication, amqp_priority, check_header_size, expiration_ms,
    header_objection, short_string,
};
use crate::destination::answer::Answer;
use crate::destination::contract::Destination;
use crate::message::Message;

/// An exchange of RabbitMQ, or a queue of it through the default exchange.
///
/// | part of the message | source |
/// |---|---|
/// | routing key | the mapping; the job's name by default |
/// | exchange | the mapping's queue; else the destination's, the default exchange if unset |
/// | body | the payload, byte by byte |
/// | `content_type` | `application/json`, `text/plain` or `application/octet-stream` |
/// | `content_encoding` | `utf-8`, unless the body is not text |
/// | `message_id` | the delivery id: for `posthaste.confirm`, or `posthaste.inbox` |
/// | `type` | the job's name |
/// | `timestamp` | when the job was enqueued |
/// | `priority` | 1 for a priority of -1, up to 255; 0 for all others |
/// | `expiration` | the time until the job expires, if [`expires`](Self::expires) is set |
/// | headers | the mapping, and the trace context |
///
/// The routing keys of the default exchange are names of queues.
///
/// RabbitMQ drops no duplicates: an effect that must happen once is recorded in `posthaste.inbox`
/// by the consumer.
///
/// A message is accepted when RabbitMQ has confirmed and not returned it. Messages are persistent:
/// by then a durable queue has them on its disk, and a quorum queue on most of its disks. If a
/// queue or an exchange does not exist, the message is retried as if it had failed, because an
/// operator may still declare it. A message that is too large for RabbitMQ is rejected permanently.
/// If a full queue does not confirm, and while an alarm (disk, memory) blocks publishers, jobs wait
/// and no attempt is counted. Nothing is declared: the receiver declares its queues and their
/// settings.
///
/// Messages of one batch are published in order, and RabbitMQ preserves the order within an
/// exchange and a queue.
///
/// ```
/// use posthaste_relay::{Mapping, RabbitMq, Relay, Template};
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
    /// Connects to `amqp://user:password@host:port/virtual-host`, or `amqps://` for TLS, for which
    /// the program must install a provider of rustls.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            amqp: Amqp::new(url)?,
            exchange: String::new(),
            expires: false,
        })
    }

    /// Sets the exchange if the mapping sets none.
    pub fn exchange(self, exchange: impl Into<String>) -> Self {
        let exchange = exchange.into();
        Self { exchange, ..self }
    }

    /// Makes RabbitMQ drop messages that are not consumed before their job expires. The time
    /// depends on this machine's clock: if it is ahead, messages that are still wanted are lost.
    /// Without it the receiver decides. RabbitMQ accepts at most 49 days; a longer time is left
    /// out.
    pub fn expires(self) -> Self {
        let expires = true;
        Self { expires, ..self }
    }

    fn encode<'a>(
        &'a self,
        message: &'a Message,
        now: Timestamp,
    ) -> Result<Publication<'a>, Answer> {
        let exchange = message.queue.as_deref().unwrap_or(&self.exchange);
        short_string("the exchange's name", exchange)?;
        short_string("the routing key", &message.kind)?;
        let job = &message.job;
        let mut headers = FieldTable::default();
        for (name, value) in &message.headers {
            let value = AMQPValue::LongString(value.as_str().into());
            headers.insert(short_string("a header's name", name)?, value);
        }
        check_header_size(message)?;
        if let Some(reason) = message.header_problem(header_objection) {
            return Err(Answer::rejected(reason));
        }
        let enqueued_at = u64::try_from(job.enqueued_at.as_second()).unwrap_or_default();
        let content_type = message.content_type();
        let content_type = content_type.split(';').next().unwrap_or_default();
        let mut properties = BasicProperties::default()
            .with_content_type(content_type.into())
            .with_headers(headers)
            .with_delivery_mode(PERSISTENT_MODE)
            .with_priority(amqp_priority(job.priority))
            .with_message_id(message.id.to_string().into())
            .with_timestamp(enqueued_at)
            .with_type(short_string("the job's name", &job.name)?);
        if message.binary_body().is_none() {
            properties = properties.with_content_encoding("utf-8".into());
        }
        if let Some(left) = expiration_ms(job.expires_at, now).filter(|_| self.expires) {
            properties = properties.with_expiration(left.into());
        }
        Ok(Publication {
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

    fn header_objection(&self, name: &str) -> Option<String> {
        header_objection(name)
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        match self.encode(message, Timestamp::now()) {
            Err(Answer::Rejected { reason }) => Some(reason.into()),
            _ => None,
        }
    }

    /// In the default exchange, routing keys are names of queues.
    fn receiver_queue<'a>(&'a self, message: &'a Message) -> Option<&'a str> {
        let exchange = message.queue.as_deref().unwrap_or(&self.exchange);
        exchange.is_empty().then_some(&*message.kind)
    }

    fn queues_without_workers<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(self.amqp.queues_without_consumers(queues))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.amqp.probe())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::RabbitMq;
    use crate::destination::contract::Destination;
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use crate::message::tests::{ID, job};

    #[test]
    fn content_type_matches_the_body() {
        let rabbitmq = RabbitMq::new("amqp://127.0.0.1").expect("a destination");
        let row = |what: &str| format!(r#"{{"posthaste.outbox": {{"id": "{ID}", {what}}}}}"#);
        for (kwargs, content_type, encoding, body) in [
            (
                "{}".to_owned(),
                "application/json",
                Some("utf-8"),
                &b"{}"[..],
            ),
            (
                row(r#""text": "7""#),
                "application/json",
                Some("utf-8"),
                b"7",
            ),
            (row(r#""text": "7,8""#), "text/plain", Some("utf-8"), b"7,8"),
            (
                row(r#""hex": "8812""#),
                "application/octet-stream",
                None,
                b"\x88\x12",
            ),
        ] {
            let message = Mapping::default().message(job("a", &kwargs), ID);
            let message = message.expect("a message");
            let letter = rabbitmq.encode(&message, Timestamp::UNIX_EPOCH);
            let letter = letter.expect("a letter");
            let error = letter.properties.content_type().as_ref();
            assert_eq!(
                error.map(ToString::to_string).as_deref(),
                Some(content_type)
            );
            let error = letter.properties.content_encoding().as_ref();
            assert_eq!(error.map(ToString::to_string).as_deref(), encoding);
            assert_eq!(&*letter.body, body);
        }
    }

    #[test]
    fn rejects_headers_that_would_close_the_connection() {
        let rabbitmq = RabbitMq::new("amqp://127.0.0.1").expect("a destination");
        for (name, value, is_refused) in [
            ("a", "1".to_owned(), false),
            ("CC", "1".to_owned(), true),
            ("a", "x".repeat(1 << 20), true),
        ] {
            let mapping = Mapping::default().header(name, Template::text(value));
            let message = mapping.message(job("a", "{}"), ID).expect("a message");
            assert_eq!(
                rabbitmq.rejection_reason(&message).is_some(),
                is_refused,
                "{name}"
            );
        }
    }
}
