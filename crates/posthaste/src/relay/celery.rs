//! Celery: tasks as its own client sends them, by protocol 2. What carries them is a file each.

#[cfg(feature = "celery-rabbitmq")]
mod rabbitmq;
#[cfg(feature = "celery-redis")]
mod redis;

use std::borrow::Cow;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::destination::{Answer, Destination, Weakness};
use super::json::put_payload;
use super::message::{Arguments, Message};
use super::window::seconds;
use crate::error::Error;

/// The queue where nothing is said, as Celery has it.
const QUEUE: &str = "celery";
/// Workers fetch tasks ahead of their time and hold them unacknowledged. Redis hands them to another one after an hour, RabbitMQ after half an hour.
const AHEAD: Duration = Duration::from_secs(15 * 60);
/// What a body says of its coding, always.
const CONTENT_TYPE: &str = "application/json";
const CONTENT_ENCODING: &str = "utf-8";
/// How much of arguments is shown by Celery's tools, as its own client has it.
const SHOWN: usize = 1024;

/// Celery's queues, on its broker.
///
/// | of the task | comes |
/// |---|---|
/// | name | what the mapping says, the job's name unless it says something |
/// | queue | what the mapping says, else the destination's, `celery` unless said otherwise |
/// | arguments | the list in `{"args": […]}`, else an object as keywords, else the payload as the only argument |
/// | id, root id, correlation id | the delivery id |
/// | headers | what the mapping says, and trace context; one of a name that Celery has takes the place of Celery's |
/// | priority | as the broker has them |
/// | eta | where [`Mapping::at`](super::Mapping::at) says when, a quarter of an hour ahead at most |
/// | time limits, expiry | what is said here |
///
/// Celery drops no duplicates: an effect that must happen once is recorded in `posthaste.inbox` by the worker. Accepted is what the broker has answered for:
/// `Celery::redis` and `Celery::rabbitmq` say what is written there and what a crash of it loses.
///
/// ```
/// # #[cfg(feature = "celery-redis")] {
/// use posthaste::relay::{Celery, Relay};
/// # fn main() -> Result<(), posthaste::Error> {
/// let celery = Celery::redis("redis://127.0.0.1:6379/0")?.queue("mail");
/// let relay = Relay::to(celery).batch(100);
/// # Ok(()) }
/// # }
/// ```
pub struct Celery {
    broker: Box<dyn Broker>,
    options: Options,
}

/// What carries tasks.
trait Broker: Send + Sync {
    fn label(&self) -> String;
    fn send<'a>(&'a self, batch: &'a [Message], options: &'a Options)
    -> BoxFuture<'a, Vec<Answer>>;
    fn probe(&self) -> BoxFuture<'_, Result<(), String>>;
    fn weaknesses(&self) -> BoxFuture<'_, Result<Vec<Weakness>, Error>>;
}

/// What is the same for all tasks of a destination.
#[derive(Debug)]
struct Options {
    queue: String,
    time_limit: Option<u64>,
    soft_time_limit: Option<u64>,
    expires: bool,
}

impl Celery {
    fn on(broker: impl Broker + 'static) -> Self {
        Self {
            broker: Box::new(broker),
            options: Options {
                queue: QUEUE.into(),
                time_limit: None,
                soft_time_limit: None,
                expires: false,
            },
        }
    }

    /// Celery's queue, where the mapping says none.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.options.queue = queue.into();
        self
    }

    /// How long a task may run before its process is killed; as the worker has it unless said otherwise.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.options.time_limit = Some(seconds(limit));
        self
    }

    /// How long a task may run before it is told; as the worker has it unless said otherwise.
    pub fn soft_time_limit(mut self, limit: Duration) -> Self {
        self.options.soft_time_limit = Some(seconds(limit));
        self
    }

    /// Celery drops a task that it takes up after the job has expired.
    pub fn expires(mut self) -> Self {
        self.options.expires = true;
        self
    }
}

impl Options {
    fn queue_of<'a>(&'a self, message: &'a Message) -> &'a str {
        message.queue.as_deref().unwrap_or(&self.queue)
    }
}

/// A task, whatever carries it.
#[derive(Debug)]
struct Task<'a> {
    headers: Vec<(&'a str, Header<'a>)>,
    /// JSON.
    body: String,
}

/// A value among a task's headers.
#[derive(Clone, Debug, PartialEq)]
enum Header<'a> {
    Null,
    Text(Cow<'a, str>),
    Number(u64),
    /// Hard and soft, in seconds.
    Limits([Option<u64>; 2]),
    /// A table without entries.
    Empty,
}

/// A message as Celery's client makes it of a call. `id` is the delivery id, as a text.
fn encode<'a>(message: &'a Message, id: &'a str, options: &Options) -> Task<'a> {
    use Header::{Empty, Limits, Null, Number, Text};
    let (args, kwargs) = call(message);
    let expires = match options.expires {
        true => Text(Cow::Owned(offset(message.job.expires_at))),
        false => Null,
    };
    let eta = match message.at {
        Some(at) => Text(Cow::Owned(offset(at))),
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
        ("argsrepr", Text(shown(&args))),
        ("kwargsrepr", Text(shown(&kwargs))),
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

/// Positional arguments and those by keyword, as JSON.
fn call(message: &Message) -> (Cow<'_, str>, Cow<'_, str>) {
    match message.arguments() {
        Arguments::List(list) => (list.into(), "{}".into()),
        Arguments::Payload(payload)
            if message.is_json() && payload.trim_start().starts_with('{') =>
        {
            ("[]".into(), payload.into())
        }
        Arguments::Payload(_) => {
            let mut only = String::from("[");
            put_payload(&mut only, message);
            only.push(']');
            (only.into(), "{}".into())
        }
    }
}

/// Arguments as Celery's tools show them, not too many.
fn shown<'a>(arguments: &Cow<'a, str>) -> Cow<'a, str> {
    if arguments.len() <= SHOWN {
        return arguments.clone();
    }
    let end = arguments.floor_char_boundary(SHOWN);
    Cow::Owned(format!("{}...", &arguments[..end]))
}

/// As Python writes a time in UTC.
fn offset(at: Timestamp) -> String {
    let at = at.to_string();
    format!("{}+00:00", at.trim_end_matches('Z'))
}

impl Destination for Celery {
    fn label(&self) -> String {
        format!("celery at {}", self.broker.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        self.broker.send(batch, &self.options)
    }

    fn ahead(&self) -> Duration {
        AHEAD
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.broker.probe()
    }

    fn weaknesses(&self, _longest_outage: Duration) -> BoxFuture<'_, Result<Vec<Weakness>, Error>> {
        self.broker.weaknesses()
    }
}

#[cfg(test)]
mod tests {
    use super::{SHOWN, call, shown};
    use crate::relay::message::tests::{ID, job};
    use crate::relay::{Mapping, Template};

    #[test]
    fn a_payload_becomes_the_arguments_of_a_call() {
        for (payload, args, kwargs) in [
            (r#"{"args": [1, "two"]}"#, r#"[1, "two"]"#, "{}"),
            (
                r#"{"args": [1], "to": "ada"}"#,
                "[]",
                r#"{"args": [1], "to": "ada"}"#,
            ),
            ("{}", "[]", "{}"),
            ("[1, 2]", "[[1, 2]]", "{}"),
            ("{plain}", r#"["{plain}"]"#, "{}"),
        ] {
            let mapping = Mapping::default().payload(Template::text(payload));
            let message = mapping.message(job("a", "{}"), ID).expect("a message");
            assert_eq!(call(&message), (args.into(), kwargs.into()));
        }
    }

    #[test]
    fn what_is_shown_of_arguments_is_cut_between_signs() {
        let long = "é".repeat(SHOWN).into();
        assert_eq!(shown(&long), format!("{}...", "é".repeat(SHOWN / 2)));
        let odd = format!("x{}", "é".repeat(SHOWN)).into();
        assert!(shown(&odd).ends_with("é..."));
        assert_eq!(shown(&"[1]".into()), "[1]");
    }
}
