//! BullMQ: jobs as its Node client adds them to Redis. In one file, because the encoding and the
//! tests that compare it belong together.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use posthaste::Error;
use redis::Pipeline;

use crate::destination::answer::Answer;
use crate::destination::contract::DEFAULT_LONGEST_OUTAGE;
use crate::destination::contract::{Destination, UnsafeSetting};
use crate::destination::redis::queues_without_readers;
use crate::destination::redis::{Calls, Redis, Script};
use crate::destination::retention::{ceil_seconds, check_retention};
use crate::message::Message;
use crate::message::json::put_text;

/// The largest priority of BullMQ.
const LOWEST_PRIORITY: i32 = 1 << 21;

/// A queue of BullMQ, from version 5 on, as its own client writes it: the hash `bull:<queue>:<id>`,
/// and the keys that notify workers and `QueueEvents`.
///
/// | part of the job | source |
/// |---|---|
/// | name | the mapping; the job's name by default |
/// | queue | the mapping; else the destination's |
/// | data | the payload; a string if it is not JSON |
/// | job id | the delivery id |
/// | priority | the job's if it is 1 or more: lower runs first, and jobs without one before all |
/// | timestamp | when the job was enqueued |
/// | delay | the time of [`Mapping::at`](crate::Mapping::at); the priority applies once it is due |
/// | telemetry | the headers and the trace context, as BullMQ's own telemetry stores them |
/// | attempts, backoff, removeOnComplete, removeOnFail | the options below |
///
/// A job whose id BullMQ knows is not added again and counts as accepted. That is the duplicate
/// window: from the first delivery until the job is removed, which
/// [`remove_on_complete`](Self::remove_on_complete) sets. A message is accepted when Redis has
/// answered, so the settings of Redis decide what its crash loses; see [`UnsafeSetting`]. A job for
/// a queue without a name, or with a colon in it, is rejected permanently: BullMQ has no such
/// queues.
///
/// ```
/// use std::time::Duration;
/// use posthaste_relay::{BullMq, Relay};
/// # fn main() -> Result<(), posthaste::Error> {
/// let bullmq = BullMq::new("redis://127.0.0.1:6379/0", "mail")?
///     .attempts(5)
///     .exponential_backoff(Duration::from_secs(1));
/// let relay = Relay::to(bullmq).batch(100);
/// # Ok(()) }
/// ```
pub struct BullMq {
    redis: Redis,
    script: Script,
    queue: String,
    prefix: String,
    attempts: u32,
    backoff: Option<(&'static str, Duration)>,
    remove_on_complete: Duration,
    remove_on_fail: Option<Duration>,
}

impl BullMq {
    /// Sends to this Redis, and to this queue if the mapping sets none.
    pub fn new(url: &str, queue: impl Into<String>) -> Result<Self, Error> {
        let queue = queue.into();
        if !is_queue_name(&queue) {
            return Err(Error::invalid("queue", "must have a name, without a colon"));
        }
        Ok(Self {
            redis: Redis::new(url)?,
            script: Script::new(include_str!("bullmq.lua")),
            queue,
            prefix: "bull".into(),
            attempts: 0,
            backoff: None,
            remove_on_complete: DEFAULT_LONGEST_OUTAGE,
            remove_on_fail: None,
        })
    }

    /// Sets the prefix of all keys; `bull` by default, as in BullMQ.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        Self { prefix, ..self }
    }

    /// Sets how often BullMQ runs a job; once by default.
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Sets a constant delay before BullMQ retries a failed job.
    pub fn fixed_backoff(self, wait: Duration) -> Self {
        let backoff = Some(("fixed", wait));
        Self { backoff, ..self }
    }

    /// Sets the delay before BullMQ first retries a failed job; it doubles each time.
    pub fn exponential_backoff(self, wait: Duration) -> Self {
        let backoff = Some(("exponential", wait));
        Self { backoff, ..self }
    }

    /// Sets how long BullMQ stores a completed job, and with it its id; 24 hours by default. BullMQ
    /// removes older jobs when another is completed.
    pub fn remove_on_complete(self, age: Duration) -> Self {
        Self {
            remove_on_complete: age,
            ..self
        }
    }

    /// Sets how long BullMQ stores a job that failed permanently; its workers decide by default.
    pub fn remove_on_fail(self, age: Duration) -> Self {
        Self {
            remove_on_fail: Some(age),
            ..self
        }
    }

    /// Returns the options that all jobs share.
    fn shared_options(&self) -> String {
        let mut options = format!("\"attempts\":{}", self.attempts);
        if let Some((kind, wait)) = self.backoff {
            let delay = wait.as_millis();
            let _ = write!(
                options,
                ",\"backoff\":{{\"type\":\"{kind}\",\"delay\":{delay}}}"
            );
        }
        let completed = ("removeOnComplete", Some(self.remove_on_complete));
        for (option, age) in [completed, ("removeOnFail", self.remove_on_fail)] {
            let _ = match age.map(ceil_seconds) {
                None => Ok(()),
                Some(0) => write!(options, ",\"{option}\":true"),
                Some(age) => write!(options, ",\"{option}\":{{\"age\":{age}}}"),
            };
        }
        options
    }

    fn build_calls(&self, batch: &[Message]) -> Calls<'_> {
        let common = self.shared_options();
        let mut queues: HashMap<&str, Vec<String>> = HashMap::new();
        let mut calls = Calls::new(&self.script, Pipeline::new(), batch);
        let mut job = AddedJob::default();
        let mut key = String::new();
        for (index, message) in batch.iter().enumerate() {
            let queue = message.queue.as_deref().unwrap_or(&self.queue);
            if let Some(reason) = self.rejection_reason(message) {
                calls.refuse(index, reason);
                continue;
            }
            let of_queue = queues
                .entry(queue)
                .or_insert_with(|| queue_keys(&self.prefix, queue));
            job.fill(message, &common);
            key.clear();
            let _ = write!(key, "{}:{queue}:{}", self.prefix, job.id);
            let mut all = [key.as_str(); 11];
            for (place, key) in all[1..].iter_mut().zip(of_queue.iter()) {
                *place = key;
            }
            calls.call(index, &all, &job.script_arguments(message));
        }
        calls
    }
}

/// Returns whether BullMQ allows this name of a queue.
fn is_queue_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(':')
}

/// Returns the keys of a queue, in the order of the script's parameters.
fn queue_keys(prefix: &str, queue: &str) -> Vec<String> {
    const KEY_PARTS: [&str; 10] = [
        "id",
        "meta",
        "wait",
        "paused",
        "active",
        "prioritized",
        "pc",
        "marker",
        "events",
        "delayed",
    ];
    let key = |part: &&str| format!("{prefix}:{queue}:{part}");
    KEY_PARTS.iter().map(key).collect()
}

/// The arguments of the script for a job.
#[derive(Default)]
struct AddedJob {
    id: String,
    data: String,
    options: String,
    timestamp: String,
    priority: String,
    /// Milliseconds after the timestamp.
    delay: String,
}

impl AddedJob {
    /// Fills it from a message. The previous values are overwritten, to reuse their memory.
    fn fill(&mut self, message: &Message, common: &str) {
        for field in [
            &mut self.id,
            &mut self.data,
            &mut self.options,
            &mut self.timestamp,
            &mut self.priority,
            &mut self.delay,
        ] {
            field.clear();
        }
        let job = &message.job;
        let priority = job.priority.clamp(0, LOWEST_PRIORITY);
        let timestamp = job.enqueued_at.as_millisecond();
        let delay = message.at.map_or(0, |at| delay_ms(timestamp, at));
        let _ = write!(self.id, "{}", message.id.hyphenated());
        let _ = write!(self.timestamp, "{timestamp}");
        let _ = write!(self.priority, "{priority}");
        let _ = write!(self.delay, "{delay}");
        message.append_payload(&mut self.data);
        let _ = write!(
            self.options,
            "{{\"jobId\":\"{}\",\"timestamp\":{timestamp},{common}",
            self.id
        );
        if priority > 0 {
            let _ = write!(self.options, ",\"priority\":{priority}");
        }
        if delay > 0 {
            let _ = write!(self.options, ",\"delay\":{delay}");
        }
        if !message.headers.is_empty() {
            self.options.push_str(",\"tm\":");
            put_text(&mut self.options, &encode_telemetry(&message.headers));
        }
        self.options.push('}');
    }

    fn script_arguments<'a>(&'a self, message: &'a Message) -> [&'a [u8]; 7] {
        [
            &self.id,
            &message.kind,
            &self.data,
            &self.options,
            &self.timestamp,
            &self.priority,
            &self.delay,
        ]
        .map(String::as_bytes)
    }
}

/// Returns how long after its timestamp a job is due, in whole milliseconds, rounded up.
fn delay_ms(timestamp: i64, at: Timestamp) -> i64 {
    let part = i64::from(at.as_microsecond() % 1_000 > 0);
    (at.as_millisecond() + part - timestamp).max(0)
}

/// Encodes headers as the propagators of BullMQ's telemetry read them: a JSON object in a string.
fn encode_telemetry(headers: &[(String, String)]) -> String {
    let headers: BTreeMap<&String, &String> =
        headers.iter().map(|(name, value)| (name, value)).collect();
    serde_json::to_string(&headers).unwrap_or_default()
}

impl Destination for BullMq {
    fn label(&self) -> String {
        format!("bullmq at {}", self.redis.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move { self.build_calls(batch).send(&self.redis).await })
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        let queue = message.queue.as_deref().unwrap_or(&self.queue);
        let why = "a BullMQ queue needs a name without a colon";
        (!is_queue_name(queue)).then(|| why.into())
    }

    fn receiver_queue<'a>(&'a self, message: &'a Message) -> Option<&'a str> {
        Some(message.queue.as_deref().unwrap_or(&self.queue))
    }

    /// A worker names its connection after its queue, if it is allowed to.
    fn queues_without_workers<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async move {
            let mut clients = redis::pipe();
            clients.cmd("CLIENT").arg("LIST");
            let clients: Vec<String> = self.redis.read_all(&mut clients).await?;
            let fields = clients.iter().flat_map(|list| list.split_whitespace());
            let names: HashSet<&str> = fields
                .filter_map(|field| field.strip_prefix("name="))
                .map(|name| name.split(":w:").next().unwrap_or(name))
                .collect();
            let has_worker = |queue: &&String| {
                let queue = BASE64_STANDARD.encode(queue.as_str());
                names.contains(format!("{}:{queue}", self.prefix).as_str())
            };
            let read = queues.iter().filter(has_worker).cloned();
            Ok(queues_without_readers(queues, read))
        })
    }

    fn max_lead_time(&self) -> Duration {
        Duration::MAX
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.redis.probe())
    }

    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(self.redis.misconfiguration())
    }

    fn unsafe_settings(
        &self,
        outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async move {
            let mut unsafe_settings = self.redis.unsafe_settings().await?;
            let retained = self.remove_on_complete;
            unsafe_settings.extend(check_retention("removeOnComplete", retained, outage));
            let failed = self
                .remove_on_fail
                .and_then(|retained| check_retention("removeOnFail", retained, outage));
            unsafe_settings.extend(failed);
            Ok(unsafe_settings)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{AddedJob, BullMq, queue_keys};
    use crate::destination::golden::{Case, cases};
    use serde_json::{Value, json};
    use std::time::Duration;

    /// Cases that this relay never writes: it adds jobs in their order.
    const NOT_OURS: [&str; 1] = ["lifo"];
    const ID: &str = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f";

    fn destination(case: &Case) -> BullMq {
        let options = &case.input()["opts"];
        let age = |option: &str| options[option]["age"].as_u64().map(Duration::from_secs);
        let mut bullmq = BullMq::new("redis://127.0.0.1", "mail").expect("a destination");
        if let Some(age) = age("removeOnComplete") {
            bullmq = bullmq.remove_on_complete(age);
        }
        if let Some(age) = age("removeOnFail") {
            bullmq = bullmq.remove_on_fail(age);
        }
        if let Some(attempts) = options["attempts"].as_u64() {
            bullmq = bullmq.attempts(u32::try_from(attempts).expect("a number"));
            bullmq = bullmq.exponential_backoff(Duration::from_secs(1));
        }
        bullmq
    }

    #[test]
    fn jobs_match_the_fields_of_the_bullmq_client() {
        let cases = cases(include_str!("../../tests/relay/golden/bullmq.json"));
        let ours = cases.iter().filter(|case| !NOT_OURS.contains(&case.name()));
        let mut compared = 0;
        for case in ours {
            let theirs = case.texts("HMSET");
            let field = |name: &str| {
                let at = theirs.iter().position(|word| word == name);
                theirs[at.expect("the field") + 1].as_str()
            };
            let mut message = case.message(ID, field("data"), |job| {
                let priority = case.input()["opts"]["priority"].as_i64().unwrap_or(0);
                job.priority = i32::try_from(priority).expect("a number");
            });
            if let Some(delay) = case.input()["opts"]["delay"].as_u64() {
                message.at = Some(message.job.enqueued_at + Duration::from_millis(delay));
            }
            let bullmq = destination(case);
            let mut job = AddedJob::default();
            job.fill(&message, "left over");
            job.fill(&message, &bullmq.shared_options());
            let [id, name, data, options, timestamp, priority, delay] = job
                .script_arguments(&message)
                .map(|one| std::str::from_utf8(one).expect("a text"));
            assert_eq!(format!("bull:mail:{id}"), theirs[1]);
            let mine = [name, data, timestamp, priority, delay];
            let names = ["name", "data", "timestamp", "priority", "delay"];
            assert_eq!(mine, names.map(field));
            let mut expected: Value = serde_json::from_str(field("opts")).expect("JSON");
            // The client stores every completed job by default, and can store a number of failed
            // ones.
            if expected.get("removeOnComplete").is_none() {
                expected["removeOnComplete"] = json!({ "age": 86400 });
            }
            if let Some(retained) = expected["removeOnFail"].as_object_mut() {
                retained.remove("count");
            } else {
                expected
                    .as_object_mut()
                    .expect("options")
                    .remove("removeOnFail");
            }
            let options: Value = serde_json::from_str(options).expect("JSON");
            assert_eq!(options, expected, "{}", case.name());
            compared += 1;
        }
        assert_eq!(compared, 10);
    }

    #[test]
    fn scripts_receive_the_keys_of_their_queue() {
        let cases = cases(include_str!("../../tests/relay/golden/bullmq.json"));
        let theirs = cases.iter().flat_map(|case| case.texts("eval"));
        let theirs: Vec<String> = theirs.filter(|word| word.starts_with("bull:")).collect();
        let mine = queue_keys("bull", "mail");
        assert!(mine.iter().all(|key| theirs.contains(key)), "{mine:?}");
    }

    #[test]
    fn trace_headers_follow_bullmq_telemetry() {
        let message = crate::message::mapping::Mapping::default()
            .header("a", crate::message::template::Template::text("\"b\""))
            .message(crate::message::tests::job("a", "{}"), uuid::Uuid::nil())
            .expect("a message");
        let mut job = AddedJob::default();
        job.fill(&message, "\"attempts\":0");
        let options: Value = serde_json::from_str(&job.options).expect("JSON");
        let headers = options["tm"].as_str().expect("a text");
        assert_eq!(
            serde_json::from_str::<Value>(headers).ok(),
            Some(json!({ "a": "\"b\"" }))
        );
    }
}
