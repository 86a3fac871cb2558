//! Celery over RabbitMQ: tasks as its client publishes them.

use std::borrow::Cow;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use posthaste::Error;

use super::{
    Broker, CONTENT_ENCODING, CONTENT_TYPE, Celery, HeaderValue, TaskOptions, encode_task,
    task_problem,
};
use crate::destination::amqp::{
    Amqp, PERSISTENT_MODE, Publication, amqp_priority, check_header_size, expiration_ms,
    header_objection, short_string,
};
use crate::destination::answer::Answer;
use crate::destination::contract::UnsafeSetting;
use crate::message::Message;

impl Celery {
    /// Sends over RabbitMQ, `amqp://user:password@host:port/virtual-host`: the queue is the routing
    /// key of the default exchange. A task is accepted when it is confirmed and not returned; see
    /// [`RabbitMq`](crate::RabbitMq) for other answers. If no worker has declared the queue yet,
    /// tasks are retried as if they had failed. RabbitMQ runs the highest priority first: it is 1
    /// for a job's -1, up to 255, and 0 for all others.
    pub fn rabbitmq(url: &str) -> Result<Self, Error> {
        Amqp::new(url).map(Self::with_broker)
    }
}

impl Broker for Amqp {
    fn label(&self) -> String {
        Self::label(self)
    }

    fn send<'a>(
        &'a self,
        batch: &'a [Message],
        options: &'a TaskOptions,
    ) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let now = Timestamp::now();
            let letters = batch
                .iter()
                .map(|message| encode_publication(message, options, now));
            self.publish(letters.collect()).await
        })
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        header_objection(name)
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(Self::probe(self))
    }

    fn unsafe_settings(&self) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Encodes a task for publishing.
fn encode_publication<'a>(
    message: &'a Message,
    options: &'a TaskOptions,
    now: Timestamp,
) -> Result<Publication<'a>, Answer> {
    if let Some(reason) = task_problem(message, options) {
        return Err(Answer::rejected(reason));
    }
    let queue = options.receiver_queue(message);
    short_string("the queue's name", queue)?;
    let id = message.id.to_string();
    let task = encode_task(message, &id, options);
    let mut headers = FieldTable::default();
    for (name, value) in task.headers {
        headers.insert(short_string("a header's name", name)?, to_amqp(value));
    }
    check_header_size(message)?;
    let mut properties = BasicProperties::default()
        .with_content_type(CONTENT_TYPE.into())
        .with_content_encoding(CONTENT_ENCODING.into())
        .with_headers(headers)
        .with_delivery_mode(PERSISTENT_MODE)
        .with_priority(amqp_priority(message.job.priority))
        .with_correlation_id(id.as_str().into());
    // Celery's client also sends a time beyond 49 days, for which RabbitMQ closes the channel.
    let left = expiration_ms(message.job.expires_at, now);
    if let Some(left) = left.filter(|_| options.expires) {
        properties = properties.with_expiration(left.into());
    }
    Ok(Publication {
        exchange: "",
        routing_key: queue,
        properties,
        body: Cow::Owned(task.body.into_bytes()),
    })
}

fn to_amqp(value: HeaderValue<'_>) -> AMQPValue {
    match value {
        HeaderValue::Null => AMQPValue::Void,
        HeaderValue::Text(text) => AMQPValue::LongString(text.as_ref().into()),
        HeaderValue::Number(number) => encode_integer(number),
        HeaderValue::Limits(limits) => {
            let limits = limits.map(|limit| limit.map_or(AMQPValue::Void, encode_integer));
            AMQPValue::FieldArray(limits.to_vec().into())
        }
        HeaderValue::Empty => AMQPValue::FieldTable(FieldTable::default()),
    }
}

/// Encodes an integer as Celery's client does: in 32 bits if it fits.
fn encode_integer(number: u64) -> AMQPValue {
    match i32::try_from(number) {
        Ok(short) => AMQPValue::LongInt(short),
        Err(_) => AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use lapin::types::{AMQPValue, FieldTable, ShortString};
    use serde_json::{Value, json};

    use super::encode_publication;
    use crate::destination::celery::Celery;
    use crate::destination::golden::cases;

    /// A task that RabbitMQ rejected: its time until expiry is too long.
    const NOT_OURS: [&str; 1] = ["expires"];

    fn describe(value: &AMQPValue) -> Value {
        match value {
            AMQPValue::Void => Value::Null,
            AMQPValue::LongInt(value) => json!(value),
            AMQPValue::LongString(value) => json!(value.to_string()),
            AMQPValue::FieldArray(values) => values.as_slice().iter().map(describe).collect(),
            AMQPValue::FieldTable(table) => describe_table(table),
            other => panic!("{other:?} is in no capture"),
        }
    }

    fn describe_table(table: &FieldTable) -> Value {
        let fields = table.inner().iter();
        let fields = fields.map(|(name, value)| (name.to_string(), describe(value)));
        Value::Object(fields.collect())
    }

    /// Returns the headers without those that describe the call to people.
    fn comparable(mut headers: Value) -> Value {
        for shown in ["argsrepr", "kwargsrepr", "origin"] {
            let removed = headers.as_object_mut().expect("a table").remove(shown);
            assert!(removed.is_some_and(|one| one.is_string()), "{shown}");
        }
        headers
    }

    #[test]
    fn rabbitmq_tasks_match_the_celery_client() {
        let cases = cases(include_str!(
            "../../../tests/relay/golden/celery_rabbitmq.json"
        ));
        let ours = cases.iter().filter(|case| !NOT_OURS.contains(&case.name()));
        let mut compared = 0;
        for case in ours {
            let (name, arrived) = (case.name(), case.arrived());
            let theirs = &arrived["properties"];
            let mut headers = theirs["application_headers"].clone();
            let mut body: Value =
                serde_json::from_str(arrived["body"].as_str().expect("a body")).expect("JSON");
            let payload = match body[1] == json!({}) {
                true => json!({ "args": body[0] }),
                // A job has either a list of arguments or named ones.
                false => {
                    body[0] = json!([]);
                    body[1].clone()
                }
            };
            let id = headers["id"].as_str().expect("an id").to_owned();
            let message = case.message(&id, &payload.to_string(), |job| {
                let number = case.input()["priority"].as_i64().unwrap_or(0);
                job.priority = -i32::try_from(number).expect("a number");
            });
            let mut celery = Celery::rabbitmq("amqp://127.0.0.1").expect("a destination");
            if let Some(limit) = case.seconds("time_limit") {
                celery = celery.time_limit(limit);
            }
            if let Some(limit) = case.seconds("soft_time_limit") {
                celery = celery.soft_time_limit(limit);
            }
            let mine = encode_publication(&message, &celery.options, Timestamp::UNIX_EPOCH)
                .expect("a letter");
            assert_eq!(
                (mine.exchange, mine.routing_key),
                ("", arrived["routing_key"].as_str().expect("a key"))
            );
            assert_eq!(
                serde_json::from_slice::<Value>(&mine.body).expect("JSON"),
                body,
                "{name}"
            );
            let properties = &mine.properties;
            let all = properties.headers().as_ref().expect("headers");
            // The client counts attempts itself.
            headers["retries"] = json!(0);
            assert_eq!(
                comparable(describe_table(all)),
                comparable(headers),
                "{name}"
            );
            let text = |one: &Option<ShortString>| json!(one.as_ref().map(ToString::to_string));
            for (mine, property) in [
                (text(properties.content_type()), "content_type"),
                (text(properties.content_encoding()), "content_encoding"),
                (text(properties.correlation_id()), "correlation_id"),
                (json!(properties.delivery_mode()), "delivery_mode"),
                (json!(properties.priority()), "priority"),
            ] {
                assert_eq!(mine, theirs[property], "{name}: {property}");
            }
            compared += 1;
        }
        assert_eq!(compared, 7);
    }

    #[test]
    fn rabbitmq_and_the_worker_expire_tasks_alike() {
        let job = crate::message::tests::job("a", "{}");
        let message = crate::message::mapping::Mapping::default().message(job, uuid::Uuid::nil());
        let message = message.expect("a message");
        let celery = Celery::rabbitmq("amqp://127.0.0.1")
            .expect("a destination")
            .expires();
        let expires_at = message.job.expires_at;
        let minute = jiff::SignedDuration::from_secs(60);
        let mine =
            encode_publication(&message, &celery.options, expires_at - minute).expect("a letter");
        let expiration = mine
            .properties
            .expiration()
            .as_ref()
            .map(ToString::to_string);
        assert_eq!(expiration.as_deref(), Some("60000"));
        let headers = describe_table(mine.properties.headers().as_ref().expect("headers"));
        assert_eq!(headers["expires"], "2026-11-21T10:00:00+00:00");
    }
}
