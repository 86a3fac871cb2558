//! Celery: tasks as its own client sends them, by protocol 2. Each broker has a file.

#[cfg(feature = "celery-rabbitmq")]
mod rabbitmq;
#[cfg(feature = "celery-redis")]
mod redis;
mod time;

use std::borrow::Cow;
use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::Error;

use crate::destination::answer::Answer;
use crate::destination::contract::{Destination, UnsafeSetting};
use crate::destination::retention::ceil_seconds;
use crate::message::json::depth_beyond;
use crate::message::{Arguments, Message};

/// Celery's default queue.
const DEFAULT_QUEUE: &str = "celery";
/// How far ahead tasks are sent. Workers fetch them ahead of their time and hold them
/// unacknowledged; Redis delivers them to another worker after an hour, RabbitMQ after half an
/// hour.
const MAX_LEAD_TIME: Duration = Duration::from_secs(15 * 60);
/// The encoding of a body, for all tasks.
const CONTENT_TYPE: &str = "application/json";
const CONTENT_ENCODING: &str = "utf-8";
/// Python reads JSON nested approximately 1,000 deep, less the frames of the worker.
const MAX_DEPTH: usize = 500;
/// Headers that Celery sets or that its workers would interpret. Texts that Celery only shows or
/// stores are not among them.
const RESERVED_HEADERS: [&str; 31] = [
    "args",
    "called_directly",
    "callbacks",
    "chain",
    "children",
    "chord",
    "compression",
    "correlation_id",
    "delivery_info",
    "errbacks",
    "eta",
    "expires",
    "group",
    "group_index",
    "headers",
    "hostname",
    "id",
    "ignore_result",
    "is_eager",
    "kwargs",
    "lang",
    "properties",
    "replaced_task_nesting",
    "reply_to",
    "retries",
    "stamped_headers",
    "stamps",
    "task",
    "taskset",
    "timelimit",
    "utc",
];
/// The longest arguments in Celery's tools, in bytes, by the default of its client.
const MAX_SHOWN_BYTES: usize = 1024;

/// Celery's queues, on its broker.
///
/// | part of the task | source |
/// |---|---|
/// | name | the mapping; the job's name by default |
/// | queue | the mapping; else the destination's, `celery` by default |
/// | arguments | the list in `{"args": […]}`, else an object as keywords, else the only argument |
/// | id, root id, correlation id | the delivery id |
/// | headers | the mapping, and trace context; some replace Celery's, see below |
/// | priority | depends on the broker |
/// | eta | the time of [`Mapping::at`](crate::Mapping::at), at most a quarter of an hour ahead |
/// | time limits, expiry | the options below |
///
/// The headers `shadow`, `argsrepr`, `kwargsrepr`, `origin`, `root_id` and `parent_id` replace
/// Celery's. A payload that is not JSON is sent as a string. A task without a name or a queue, with
/// a header that is reserved by Celery, or with arguments that are nested too deep for Python is
/// rejected permanently.
///
/// Celery drops no duplicates: an effect that must happen once is recorded in `posthaste.inbox` by
/// the worker. A message is accepted when the broker has answered: `Celery::redis` and
/// `Celery::rabbitmq` describe what is written there and what a crash loses.
///
/// ```
/// # #[cfg(feature = "celery-redis")] {
/// use posthaste_relay::{Celery, Relay};
/// # fn main() -> Result<(), posthaste::Error> {
/// let celery = Celery::redis("redis://127.0.0.1:6379/0")?.queue("mail");
/// let relay = Relay::to(celery).batch(100);
/// # Ok(()) }
/// # }
/// ```
pub struct Celery {
    broker: Box<dyn Broker>,
    options: TaskOptions,
}

/// The broker that transports tasks.
trait Broker: Send + Sync {
    fn label(&self) -> String;
    fn send<'a>(
        &'a self,
        batch: &'a [Message],
        options: &'a TaskOptions,
    ) -> BoxFuture<'a, Vec<Answer>>;
    fn header_objection(&self, _name: &str) -> Option<String> {
        None
    }
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;
    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { None })
    }
    fn unsafe_settings(&self) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>>;
}

/// The options that all tasks of a destination share.
#[derive(Debug)]
struct TaskOptions {
    queue: String,
    time_limit: Option<u64>,
    soft_time_limit: Option<u64>,
    expires: bool,
}

impl Celery {
    fn with_broker(broker: impl Broker + 'static) -> Self {
        Self {
            broker: Box::new(broker),
            options: TaskOptions {
                queue: DEFAULT_QUEUE.into(),
                time_limit: None,
                soft_time_limit: None,
                expires: false,
            },
        }
    }

    /// Sets Celery's queue if the mapping sets none.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = queue.into();
        self
    }

    /// Sets how long a task may run before its process is killed; the worker decides by default.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit = Some(ceil_seconds(limit));
        self
    }

    /// Sets how long a task may run before it is warned; the worker decides by default.
    pub fn soft_time_limit(mut self, limit: Duration) -> Self {
        self.options.soft_time_limit = Some(ceil_seconds(limit));
        self
    }

    /// Makes Celery drop a task that a worker starts after the job has expired.
    pub fn expires(mut self) -> Self {
        self.options.expires = true;
        self
    }
}

impl TaskOptions {
    fn receiver_queue<'a>(&'a self, message: &'a Message) -> &'a str {
        message.queue.as_deref().unwrap_or(&self.queue)
    }
}

/// A task, independent of the broker.
#[derive(Debug)]
struct Task<'a> {
    headers: Vec<(&'a str, HeaderValue<'a>)>,
    /// JSON.
    body: String,
}

/// The value of a task's header.
#[derive(Clone, Debug, PartialEq)]
enum HeaderValue<'a> {
    Null,
    Text(Cow<'a, str>),
    Number(u64),
    /// The hard and the soft limit, in seconds.
    Limits([Option<u64>; 2]),
    /// A table without entries.
    Empty,
}

/// Encodes a message as Celery's client encodes a call. `id` is the delivery id as text.
fn encode_task<'a>(message: &'a Message, id: &'a str, options: &TaskOptions) -> Task<'a> {
    use HeaderValue::{Empty, Limits, Null, Number, Text};
    let (args, kwargs) = call_arguments(message);
    let expires = match options.expires {
        true => Text(Cow::Owned(time::format_utc(message.job.expires_at))),
        false => Null,
    };
    let eta = match message.at {
        Some(at) => Text(Cow::Owned(time::format_utc(at))),
        None => Null,
    };
    let limits = Limits([options.time_limit, options.soft_time_limit]);
    let mut headers = Vec::with_capacity(19 + message.headers.len());
    headers.extend([
        ("lang", Text("py".into())),
        ("task", Text(message.kind.as_str().into())),
        ("id", Text(id.into())),
        ("shadow", Null),
        ("eta", eta),
        ("expires", expires),
        ("group", Null),
        ("group_index", Null),
        ("retries", Number(0)),
        ("timelimit", limits),
        ("root_id", Text(id.into())),
        ("parent_id", Null),
        ("argsrepr", Text(truncate_shown(&args))),
        ("kwargsrepr", Text(truncate_shown(&kwargs))),
        ("origin", Text("posthaste".into())),
        ("ignore_result", Null),
        ("replaced_task_nesting", Number(0)),
        ("stamped_headers", Null),
        ("stamps", Empty),
    ]);
    for (name, value) in &message.headers {
        let value = Text(value.as_str().into());
        match headers.iter_mut().find(|known| known.0 == name) {
            Some(known) => known.1 = value,
            None => headers.push((name.as_str(), value)),
        }
    }
    let mut body = String::with_capacity(args.len() + kwargs.len() + 96);
    body.push('[');
    body.push_str(&args);
    body.push_str(", ");
    body.push_str(&kwargs);
    body.push_str(r#", {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]"#);
    Task { headers, body }
}

/// Returns why Celery could not run a task, or would run another.
fn task_problem(message: &Message, options: &TaskOptions) -> Option<String> {
    let queue = options.receiver_queue(message);
    if message.kind.trim().is_empty() || queue.trim().is_empty() {
        return Some("a Celery task needs a name and a queue".into());
    }
    if queue.contains(char::is_control) {
        return Some("the queue's name contains a control character".into());
    }
    let depth = depth_beyond(message.payload(), MAX_DEPTH);
    if let Some(depth) = depth.filter(|_| message.is_json()) {
        return Some(format!(
            "its arguments are nested {depth} levels deep, but Python reads {MAX_DEPTH}"
        ));
    }
    message.header_problem(header_objection)
}

fn header_objection(name: &str) -> Option<String> {
    (RESERVED_HEADERS.contains(&name)).then(|| {
        let settings = match name {
            "timelimit" => "; use the route's settings task_time_limit and task_soft_time_limit",
            "expires" => "; use the route's setting expires",
            "eta" => "; use the route's setting at",
            "task" => "; use the route's setting task",
            _ => "",
        };
        format!("is a header that Celery sets{settings}")
    })
}

/// Returns the positional and the keyword arguments as JSON.
fn call_arguments(message: &Message) -> (Cow<'_, str>, Cow<'_, str>) {
    match message.arguments() {
        Arguments::List(list) => (list.into(), "{}".into()),
        Arguments::Payload(payload)
            if message.is_json() && payload.trim_start().starts_with('{') =>
        {
            ("[]".into(), payload.into())
        }
        Arguments::Payload(_) => {
            let mut only = String::from("[");
            message.append_payload(&mut only);
            only.push(']');
            (only.into(), "{}".into())
        }
    }
}

/// Returns arguments as Celery's tools show them, truncated.
fn truncate_shown<'a>(arguments: &Cow<'a, str>) -> Cow<'a, str> {
    if arguments.len() <= MAX_SHOWN_BYTES {
        return arguments.clone();
    }
    let end = arguments.floor_char_boundary(MAX_SHOWN_BYTES);
    Cow::Owned(format!("{}...", &arguments[..end]))
}

impl Destination for Celery {
    fn label(&self) -> String {
        format!("celery at {}", self.broker.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        self.broker.send(batch, &self.options)
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        header_objection(name).or_else(|| self.broker.header_objection(name))
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        task_problem(message, &self.options)
    }

    fn max_lead_time(&self) -> Duration {
        MAX_LEAD_TIME
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.broker.probe()
    }

    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        self.broker.misconfiguration()
    }

    fn unsafe_settings(
        &self,
        _longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        self.broker.unsafe_settings()
    }
}

#[cfg(test)]
mod tests;
