//! asynq: tasks as its Go client enqueues them into Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use posthaste::Error;
use prost::Message as _;
use redis::Pipeline;

use crate::destination::answer::Answer;
use crate::destination::contract::DEFAULT_LONGEST_OUTAGE;
use crate::destination::contract::{Destination, UnsafeSetting};
use crate::destination::redis::queues_without_readers;
use crate::destination::redis::{Calls, Redis, Script};
use crate::destination::retention::{ceil_seconds, check_retention};
use crate::message::Message;

/// asynq's default queue.
const DEFAULT_QUEUE: &str = "default";
/// How often asynq retries by default.
const DEFAULT_MAX_RETRY: i32 = 25;
/// How long a task without a timeout or deadline may run, in seconds, by the default of its client.
const DEFAULT_TIMEOUT_SECONDS: i64 = 30 * 60;

/// asynq's queues in Redis, as its Go client writes them: `asynq:{<queue>}:t:<id>` and
/// `asynq:{<queue>}:pending`.
///
/// | part of the task | source |
/// |---|---|
/// | type | the mapping; the job's name by default |
/// | queue | the mapping; else the destination's, `default` if unset |
/// | payload | the payload, byte by byte, whether it is JSON or not |
/// | headers | the mapping, and trace context |
/// | task id | the delivery id, with hyphens |
/// | scheduled | if [`Mapping::at`](crate::Mapping::at) sets a time |
/// | max retry, timeout, deadline, retention | the options below |
///
/// A task whose id asynq knows (waiting, running, failed permanently, or completed and retained for
/// the [`retention`](Self::retention)) is not enqueued again and counts as accepted. That is the
/// duplicate window: from the first delivery until the retention has passed after completion. A
/// message is accepted when Redis has answered, so the settings of Redis decide what its crash
/// loses; see [`UnsafeSetting`]. A task whose type or queue is blank is rejected permanently,
/// because asynq does not accept it.
///
/// ```
/// use std::time::Duration;
/// use posthaste_relay::{Asynq, Mapping, Relay, Template};
/// # fn main() -> Result<(), posthaste::Error> {
/// let asynq = Asynq::new("redis://127.0.0.1:6379/0")?
///     .queue("mail")
///     .max_retry(5)
///     .task_timeout(Duration::from_secs(60));
/// let mapping = Mapping::default().kind(Template::parse("mail:{kwargs.kind}")?);
/// let relay = Relay::to(asynq).mapping(mapping);
/// # Ok(()) }
/// ```
pub struct Asynq {
    redis: Redis,
    script: Script,
    queue: String,
    max_retry: i32,
    task_timeout: Option<Duration>,
    has_deadline: bool,
    retention: Duration,
}

impl Asynq {
    /// Sends to this Redis.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            redis: Redis::new(url)?,
            script: Script::new(include_str!("asynq.lua")),
            queue: DEFAULT_QUEUE.into(),
            max_retry: DEFAULT_MAX_RETRY,
            task_timeout: None,
            has_deadline: false,
            retention: DEFAULT_LONGEST_OUTAGE,
        })
    }

    /// Sets asynq's queue if the mapping sets none.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        Self { queue, ..self }
    }

    /// Sets how often asynq retries a failed task; 25 times by default.
    pub fn max_retry(self, times: u32) -> Self {
        let max_retry = i32::try_from(times).unwrap_or(i32::MAX);
        Self { max_retry, ..self }
    }

    /// Sets how long a task may run; 30 minutes by default, unless a deadline is set.
    pub fn task_timeout(self, timeout: Duration) -> Self {
        let task_timeout = Some(timeout);
        Self {
            task_timeout,
            ..self
        }
    }

    /// Makes asynq end the task when the job expires: its deadline.
    pub fn deadline(self) -> Self {
        let has_deadline = true;
        Self {
            has_deadline,
            ..self
        }
    }

    /// Sets how long asynq stores a completed task, and with it its id; 24 hours by default.
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    fn receiver_queue<'a>(&'a self, message: &'a Message) -> &'a str {
        message.queue.as_deref().unwrap_or(&self.queue)
    }

    fn build_calls(&self, batch: &[Message], now: Timestamp) -> Calls<'_> {
        let mut before = Pipeline::new();
        // Redis may forget the list of queues, so every batch writes it again.
        let queues: BTreeSet<&str> = batch.iter().map(|one| self.receiver_queue(one)).collect();
        for queue in queues.into_iter().filter(|queue| !is_blank(queue)) {
            before.cmd("SADD").arg("asynq:queues").arg(queue);
        }
        let now = now.as_nanosecond().to_string();
        let mut calls = Calls::new(&self.script, before, batch);
        let (mut task, mut bytes) = (Task::default(), Vec::new());
        let (mut key, mut pending) = (String::new(), String::new());
        for (index, message) in batch.iter().enumerate() {
            let queue = self.receiver_queue(message);
            if let Some(reason) = self.rejection_reason(message) {
                calls.refuse(index, reason);
                continue;
            }
            self.fill_task(&mut task, message);
            bytes.clear();
            // Encoding into a vector cannot fail.
            let _ = task.encode(&mut bytes);
            key.clear();
            pending.clear();
            let _ = write!(key, "asynq:{{{queue}}}:t:{}", task.id);
            let (list, at) = match message.at {
                Some(at) => ("scheduled", scheduled_score(at)),
                None => ("pending", String::new()),
            };
            let _ = write!(pending, "asynq:{{{queue}}}:{list}");
            let arguments = [&bytes, task.id.as_bytes(), now.as_bytes(), at.as_bytes()];
            calls.call(index, &[&key, &pending], &arguments);
        }
        calls
    }

    /// Fills the task from a message. The previous values are overwritten, to reuse their memory.
    fn fill_task(&self, task: &mut Task, message: &Message) {
        let put = |field: &mut String, text: &str| {
            field.clear();
            field.push_str(text);
        };
        put(&mut task.kind, &message.kind);
        put(&mut task.queue, self.receiver_queue(message));
        task.payload.clear();
        task.payload.extend_from_slice(message.body());
        task.id.clear();
        let _ = write!(task.id, "{}", message.id.hyphenated());
        task.retry = self.max_retry;
        task.retention = whole_seconds(self.retention);
        task.deadline = match self.has_deadline {
            true => message.job.expires_at.as_second(),
            false => 0,
        };
        task.timeout = match (self.task_timeout.map(whole_seconds), self.has_deadline) {
            (None | Some(0), false) => DEFAULT_TIMEOUT_SECONDS,
            (timeout, _) => timeout.unwrap_or(0),
        };
        task.headers.clear();
        task.headers.extend(message.headers.iter().cloned());
    }
}

/// Returns a time as asynq sorts by it: in whole seconds, rounded up so that no task runs too
/// early.
fn scheduled_score(at: Timestamp) -> String {
    let seconds = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
    seconds.to_string()
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn whole_seconds(time: Duration) -> i64 {
    i64::try_from(ceil_seconds(time)).unwrap_or(i64::MAX)
}

/// A task as asynq stores it: `TaskMessage` of its protocol.
#[derive(Clone, PartialEq, prost::Message)]
struct Task {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(string, tag = "4")]
    queue: String,
    #[prost(int32, tag = "5")]
    retry: i32,
    #[prost(int32, tag = "6")]
    retried: i32,
    #[prost(string, tag = "7")]
    error: String,
    #[prost(int64, tag = "8")]
    timeout: i64,
    #[prost(int64, tag = "9")]
    deadline: i64,
    #[prost(string, tag = "10")]
    unique_key: String,
    #[prost(int64, tag = "11")]
    last_failed_at: i64,
    #[prost(int64, tag = "12")]
    retention: i64,
    #[prost(int64, tag = "13")]
    completed_at: i64,
    #[prost(string, tag = "14")]
    group: String,
    #[prost(btree_map = "string, string", tag = "15")]
    headers: BTreeMap<String, String>,
}

/// The part of an asynq server's report that is read: `ServerInfo` of its protocol.
#[derive(Clone, PartialEq, prost::Message)]
struct ServerReport {
    #[prost(btree_map = "string, int32", tag = "5")]
    queues: BTreeMap<String, i32>,
}

impl Destination for Asynq {
    fn label(&self) -> String {
        format!("asynq at {}", self.redis.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let calls = self.build_calls(batch, Timestamp::now());
            calls.send(&self.redis).await
        })
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        let is_blank = is_blank(&message.kind) || is_blank(self.receiver_queue(message));
        is_blank.then(|| "an asynq task needs a type and a queue".into())
    }

    fn receiver_queue<'a>(&'a self, message: &'a Message) -> Option<&'a str> {
        Some(Self::receiver_queue(self, message))
    }

    fn queues_without_workers<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(async move {
            let mut servers = redis::pipe();
            servers.cmd("ZRANGE").arg("asynq:servers").arg(0).arg(-1);
            let servers: Vec<Vec<String>> = self.redis.read_all(&mut servers).await?;
            let mut infos = redis::pipe();
            for server in servers.iter().flatten() {
                infos.cmd("GET").arg(server);
            }
            // A dead server leaves only its name.
            let infos: Vec<Option<Vec<u8>>> = self.redis.read_all(&mut infos).await?;
            let infos = infos.iter().flatten();
            let servers = infos.filter_map(|info| ServerReport::decode(info.as_slice()).ok());
            Ok(queues_without_readers(
                queues,
                servers.flat_map(|one| one.queues.into_keys()),
            ))
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
        longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(async move {
            let mut unsafe_settings = self.redis.unsafe_settings().await?;
            unsafe_settings.extend(check_retention("retention", self.retention, longest_outage));
            Ok(unsafe_settings)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Asynq, Task, scheduled_score};
    use crate::destination::golden::{Case, cases};
    use prost::Message as _;
    use std::time::Duration;

    /// Cases that this relay never writes: unique locks and groups, for which posthaste has its
    /// own.
    const NOT_OURS: [&str; 2] = ["unique", "group"];
    const ID: &str = "018f3c9e-7b1a-7c2d-9e3f-4a5b6c7d8e9f";

    fn destination(case: &Case) -> Asynq {
        let mut asynq = Asynq::new("redis://127.0.0.1").expect("a destination");
        // The client retains no completed task by default.
        asynq = asynq.retention(case.seconds("retention").unwrap_or(Duration::ZERO));
        if let Some(timeout) = case.seconds("timeout") {
            asynq = asynq.task_timeout(timeout);
        }
        if case.seconds("deadline").is_some() {
            asynq = asynq.deadline();
        }
        if let Some(times) = case.input()["max_retry"].as_u64() {
            asynq = asynq.max_retry(u32::try_from(times).expect("a number"));
        }
        asynq
    }

    #[test]
    fn tasks_match_the_bytes_of_the_asynq_client() {
        let cases = cases(include_str!("../../tests/relay/golden/asynq.json"));
        let ours = cases.iter().filter(|case| !NOT_OURS.contains(&case.name()));
        let mut compared = 0;
        for case in ours {
            let asynq = destination(case);
            let payload = case.input()["payload"].as_str().expect("a payload");
            let message = case.message(ID, payload, |job| {
                if let Some(deadline) = case.input()["deadline"].as_i64() {
                    job.expires_at = jiff::Timestamp::from_second(deadline).expect("a time");
                }
            });
            let mut task = Task {
                // Previous values must leave no trace.
                headers: [("old".to_owned(), "old".to_owned())].into(),
                timeout: 7,
                ..Task::default()
            };
            asynq.fill_task(&mut task, &message);
            let theirs = case.command("evalsha");
            assert_eq!(task.encode_to_vec(), theirs[5], "{}", case.name());
            if let Some(at) = message.at {
                assert_eq!(scheduled_score(at).as_bytes(), theirs[6]);
            }
            compared += 1;
        }
        assert_eq!(compared, 11);
    }
}
