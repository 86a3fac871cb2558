//! Celery over Redis: messages as kombu writes them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use posthaste::Error;
use redis::Pipeline;
use uuid::Uuid;

use super::{
    Broker, CONTENT_ENCODING, CONTENT_TYPE, Celery, HeaderValue, TaskOptions, encode_task,
    task_problem,
};
use crate::destination::answer::Answer;
use crate::destination::contract::UnsafeSetting;
use crate::destination::redis::{List, Redis};
use crate::message::Message;
use crate::message::json::put_text;

/// The separator in kombu's names.
const KOMBU_SEPARATOR: &str = "\u{6}\u{16}";
/// The priorities that have their own lists, by kombu's default: each list takes the priorities up
/// to the next.
const PRIORITY_STEPS: [u8; 4] = [0, 3, 6, 9];
/// The lowest priority.
const LOWEST_PRIORITY: i32 = 9;

impl Celery {
    /// Sends over Redis: `LPUSH <queue> <message>`, and the queue's binding as kombu stores it; a
    /// priority of 3 or more has a separate list. The settings of Redis decide what its crash
    /// loses; see [`UnsafeSetting`]. A task whose worker was killed runs again after an hour
    /// (`visibility_timeout`), or is lost if `task_acks_late` is off. The priority is the job's,
    /// limited to 0 to 9: lower runs first. Messages of one queue and priority are pushed by one
    /// command, all or none.
    pub fn redis(url: &str) -> Result<Self, Error> {
        Redis::new(url).map(Self::with_broker)
    }
}

impl Broker for Redis {
    fn label(&self) -> String {
        Self::label(self)
    }

    fn send<'a>(
        &'a self,
        batch: &'a [Message],
        options: &'a TaskOptions,
    ) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let element = |message: &'a Message| {
                if let Some(reason) = task_problem(message, options) {
                    return Err(reason);
                }
                let queue = options.receiver_queue(message);
                let priority = kombu_priority(message);
                let tag = Uuid::from_u128(fastrand::u128(..));
                let envelope = encode_envelope(message, queue, priority, tag, options);
                Ok(((queue, priority_step(priority)), envelope))
            };
            self.push(batch, element, add_list_commands).await
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(Self::probe(self))
    }

    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(Self::misconfiguration(self))
    }

    fn unsafe_settings(&self) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(Self::unsafe_settings(self))
    }
}

/// Adds the commands for the messages of one list.
fn add_list_commands(commands: &mut Pipeline, (queue, step): List<'_>, envelopes: &[String]) {
    let binding = format!("{queue}{KOMBU_SEPARATOR}{KOMBU_SEPARATOR}{queue}");
    for key in ["_kombu.binding", "_kombu.binding_permanent"] {
        commands
            .cmd("SADD")
            .arg(format!("{key}.{queue}"))
            .arg(&binding);
    }
    commands
        .cmd("LPUSH")
        .arg(list_key(queue, step))
        .arg(envelopes);
}

fn list_key(queue: &str, step: u8) -> String {
    match step {
        0 => queue.to_owned(),
        step => format!("{queue}{KOMBU_SEPARATOR}{step}"),
    }
}

/// Returns the priority; lower runs first, as in Postgres.
fn kombu_priority(message: &Message) -> u8 {
    u8::try_from(message.job.priority.clamp(0, LOWEST_PRIORITY)).unwrap_or(0)
}

fn priority_step(priority: u8) -> u8 {
    let steps = PRIORITY_STEPS.into_iter().rev();
    steps
        .into_iter()
        .find(|step| *step <= priority)
        .unwrap_or(0)
}

/// Encodes a task as an element of a list. kombu identifies unacknowledged tasks by the `tag`.
fn encode_envelope(
    message: &Message,
    queue: &str,
    priority: u8,
    tag: Uuid,
    options: &TaskOptions,
) -> String {
    let id = message.id.to_string();
    let task = encode_task(message, &id, options);
    let mut json = String::with_capacity(
        1024 + task.body.len() * 4 / 3 + 2 * message.payload().len().min(1024),
    );
    json.push_str("{\"body\":\"");
    STANDARD.encode_string(&task.body, &mut json);
    let _ = write!(
        json,
        "\",\"content-encoding\":\"{CONTENT_ENCODING}\",\"content-type\":\"{CONTENT_TYPE}\",\
         \"headers\":{{"
    );
    for (index, (name, value)) in task.headers.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        put_text(&mut json, name);
        json.push(':');
        put_header(&mut json, value);
    }
    let _ = write!(
        json,
        "}},\"properties\":{{\"correlation_id\":\"{id}\",\"delivery_mode\":2,\"delivery_info\":\
         {{\"exchange\":\"\",\"routing_key\":"
    );
    put_text(&mut json, queue);
    let _ = write!(
        json,
        "}},\"priority\":{priority},\"body_encoding\":\"base64\",\"delivery_tag\":\"{tag}\"}}}}"
    );
    json
}

fn put_header(json: &mut String, value: &HeaderValue<'_>) {
    let number = |number: &Option<u64>| number.map_or("null".into(), |number| number.to_string());
    match value {
        HeaderValue::Null => json.push_str("null"),
        HeaderValue::Text(text) => put_text(json, text),
        HeaderValue::Number(number) => json.push_str(&number.to_string()),
        HeaderValue::Limits([hard, soft]) => {
            let _ = write!(json, "[{},{}]", number(hard), number(soft));
        }
        HeaderValue::Empty => json.push_str("{}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{LOWEST_PRIORITY, encode_envelope, kombu_priority, list_key, priority_step};
    use crate::destination::celery::Celery;
    use crate::destination::golden::{Case, cases};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};
    use std::time::Duration;
    use uuid::Uuid;

    const ID: &str = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f";

    fn destination(case: &Case) -> Celery {
        let mut celery = Celery::redis("redis://127.0.0.1").expect("a destination");
        if let Some(limit) = case.seconds("time_limit") {
            celery = celery.time_limit(limit);
        }
        if let Some(limit) = case.seconds("soft_time_limit") {
            celery = celery.soft_time_limit(limit);
        }
        match case.input()["expires"].is_string() {
            true => celery.expires(),
            false => celery,
        }
    }

    fn body(envelope: &Value) -> String {
        let body = STANDARD.decode(envelope["body"].as_str().expect("a body"));
        String::from_utf8(body.expect("base64")).expect("a text")
    }

    /// Removes values that differ by library, process and time.
    fn comparable(mut envelope: Value) -> Value {
        envelope["body"] = serde_json::from_str(&body(&envelope)).expect("JSON");
        let headers = envelope["headers"].as_object_mut().expect("headers");
        // These describe the call to people, as the library prints its arguments.
        for name in ["argsrepr", "kwargsrepr", "origin"] {
            headers.remove(name).expect("a header");
        }
        let properties = envelope["properties"].as_object_mut().expect("properties");
        properties.remove("delivery_tag").expect("a tag");
        // The address of a result that is not awaited, and a property that only RabbitMQ reads.
        properties.remove("reply_to");
        properties.remove("expiration");
        envelope
    }

    #[test]
    fn redis_tasks_match_the_celery_client() {
        let cases = cases(include_str!(
            "../../../tests/relay/golden/celery_redis.json"
        ));
        let mut compared = 0;
        for case in &cases {
            let pushed = case.texts("LPUSH");
            let mut theirs: Value = serde_json::from_str(&pushed[2]).expect("JSON");
            let body = body(&theirs);
            let call: Vec<&RawValue> = serde_json::from_str(&body).expect("a call");
            let [args, kwargs] = [call[0].get(), call[1].get()];
            let has_keywords = kwargs != "{}";
            let payload = match has_keywords {
                true => kwargs.to_owned(),
                false => format!("{{\"args\": {args}}}"),
            };
            let message = case.message(ID, &payload, |job| {
                let number = case.input()["priority"].as_i64().unwrap_or(0);
                job.priority = i32::try_from(number).expect("a number");
                if let Some(at) = case.input()["expires"].as_str() {
                    job.expires_at = at.parse().expect("a time");
                }
            });
            let celery = destination(case);
            let queue = celery.options.receiver_queue(&message);
            let number = kombu_priority(&message);
            assert_eq!(
                list_key(queue, priority_step(number)),
                pushed[1],
                "{}",
                case.name()
            );
            let mine = encode_envelope(&message, queue, number, Uuid::nil(), &celery.options);
            let mine = comparable(serde_json::from_str(&mine).expect("JSON"));
            // The client counts attempts itself.
            theirs["headers"]["retries"] = json!(0);
            let mut theirs = comparable(theirs);
            if has_keywords {
                // A job has either a list of arguments or named ones.
                theirs["body"][0] = json!([]);
            }
            assert_eq!(mine, theirs, "{}", case.name());
            compared += 1;
        }
        assert_eq!(compared, 8);
    }

    #[test]
    fn priorities_select_the_matching_redis_list() {
        let steps = [0, 2, 3, 5, 6, 8, 9].map(priority_step);
        assert_eq!(steps, [0, 0, 3, 3, 6, 6, 9]);
        for (given, taken) in [(-1, 0), (4, 4), (LOWEST_PRIORITY + 1, 9)] {
            let mut job = crate::message::tests::job("a", "{}");
            std::sync::Arc::get_mut(&mut job)
                .expect("not shared")
                .priority = given;
            let message = crate::message::mapping::Mapping::default().message(job, Uuid::nil());
            assert_eq!(kombu_priority(&message.expect("a message")), taken);
        }
    }

    #[test]
    fn unreserved_headers_replace_celery_defaults() {
        let mapping = crate::message::mapping::Mapping::default().header(
            "shadow",
            crate::message::template::Template::text("another name"),
        );
        let job = crate::message::tests::job("a", "{}");
        let message = mapping.message(job, Uuid::nil()).expect("a message");
        let celery = Celery::redis("redis://127.0.0.1").expect("a destination");
        let celery = celery.time_limit(Duration::from_millis(1));
        let json = encode_envelope(&message, "mail", 0, Uuid::nil(), &celery.options);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["headers"]["shadow"], "another name");
        assert_eq!(json["headers"]["timelimit"], json!([1, null]));
    }
}
