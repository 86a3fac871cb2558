//! What a job looks like when it is sent, and how a route makes that of it. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::outbox::{self, Parcel};
use super::schedule;
use super::template::{Template, argument};
use crate::job::{Job, JobId};

/// One job as it is sent.
#[derive(Clone)]
pub struct Message {
    /// The delivery id: the same at each attempt. Receivers drop duplicates by it.
    pub id: Uuid,
    /// The job.
    pub job: Arc<Job>,
    /// What kind of work it is, in the receiver's words: its class, type, task, routing key, subject or topic.
    pub kind: String,
    /// The receiver's queue or exchange, where the route says one.
    pub queue: Option<String>,
    /// What goes beside the payload, trace context among it.
    pub headers: Vec<(String, String)>,
    /// When the receiver is to run it, where the route says so: not longer from now than [`Destination::ahead`](super::Destination::ahead) allows, or over.
    pub at: Option<Timestamp>,
    /// What the route makes of the arguments; none: they go as they are.
    payload: Option<String>,
    /// A body that is no text.
    bytes: Option<Arc<[u8]>>,
}

impl Message {
    /// A message that no job stands behind, for programs that send by a [`Destination`](super::Destination) themselves.
    ///
    /// ```
    /// use posthaste::relay::Message;
    /// # let id = "01900000-0000-7000-8000-00000000002a".parse().unwrap();
    /// let mail = Message::new(id, "welcome", "Dear Ada,").header("to", "ada@example.com");
    /// assert_eq!((mail.id, mail.payload()), (id, "Dear Ada,"));
    /// ```
    pub fn new(id: Uuid, kind: impl Into<String>, payload: impl Into<String>) -> Self {
        let kind = kind.into();
        let now = Timestamp::now();
        let job = Job {
            id: JobId(0),
            name: kind.as_str().into(),
            queue: "".into(),
            priority: 0,
            enqueued_at: now,
            scheduled_at: now,
            expires_at: Timestamp::MAX,
            attempt: 0,
            max_attempts: None,
            crashes: 0,
            tag: "".into(),
            unique_key: None,
            ordering_key: None,
            kwargs: "{}".into(),
        };
        Self {
            id,
            job: Arc::new(job),
            kind,
            queue: None,
            headers: Vec::new(),
            at: None,
            payload: Some(payload.into()),
            bytes: None,
        }
    }

    /// A header more.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// What is sent as the message's body, where that can be any bytes.
    pub fn body(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.payload().as_bytes())
    }

    /// What is sent as the message's body, where that must be a text. Bytes that somebody put into `posthaste.outbox` and that are no text stand here as
    /// hexadecimal digits.
    pub fn payload(&self) -> &str {
        self.payload
            .as_deref()
            .unwrap_or_else(|| self.job.kwargs_json())
    }

    /// Whether the payload is JSON. Arguments are; a template may make anything of them.
    pub fn is_json(&self) -> bool {
        let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
        self.payload.as_deref().is_none_or(is_json)
    }

    /// The payload as a list of arguments, for receivers that want one: that in `{"args": […]}` if nothing is beside it, else the payload as the only one.
    pub fn arguments(&self) -> Arguments<'_> {
        let payload = self.payload();
        // Most payloads are told by a look at their beginning.
        if payload.len() > 7 && payload.contains("\"args\"") {
            let fields: Result<HashMap<&str, &RawValue>, _> = serde_json::from_str(payload);
            if let Ok(fields) = fields
                && let (1, Some(args)) = (fields.len(), fields.get("args"))
                && args.get().starts_with('[')
            {
                return Arguments::List(args.get());
            }
        }
        Arguments::Payload(payload)
    }
}

/// Arguments stay out of logs.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("job", &self.job.id)
            .finish_non_exhaustive()
    }
}

/// A payload, seen as the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arguments<'a> {
    /// A JSON list of positional arguments.
    List(&'a str),
    /// The payload as it is, JSON too unless a template made something else of it.
    Payload(&'a str),
}

/// How a route makes a message of a job.
///
/// ```
/// use posthaste::relay::{Mapping, Template};
/// # fn main() -> Result<(), posthaste::Error> {
/// let mapping = Mapping::default()
///     .kind(Template::parse("mail:{kwargs.kind}")?)
///     .header("tenant", Template::parse("{tag}")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mapping {
    kind: Template,
    queue: Option<Template>,
    headers: Vec<(String, Template)>,
    payload: Option<Template>,
    at: Option<Template>,
}

impl Default for Mapping {
    /// The job's name, and its arguments as they are.
    fn default() -> Self {
        Self {
            kind: Template::name(),
            queue: None,
            headers: Vec::new(),
            payload: None,
            at: None,
        }
    }
}

impl Mapping {
    /// What kind of work it is, in the receiver's words; the job's name unless said otherwise.
    pub fn kind(self, kind: Template) -> Self {
        Self { kind, ..self }
    }

    /// The receiver's queue or exchange; the destination's own unless said otherwise.
    pub fn queue(self, queue: Template) -> Self {
        let queue = Some(queue);
        Self { queue, ..self }
    }

    /// A header more.
    pub fn header(mut self, name: impl Into<String>, value: Template) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// The message's body; the job's arguments as they are unless said otherwise.
    pub fn payload(self, payload: Template) -> Self {
        let payload = Some(payload);
        Self { payload, ..self }
    }

    /// When the receiver is to run it: RFC 3339, or seconds since 1970; at once if that is over, or the job has no such argument. Sidekiq, asynq, BullMQ and
    /// Celery are given the message ahead and keep it themselves; where the receiver has no schedule the job stays in Postgres until then, and burns no attempt.
    pub fn at(self, at: Template) -> Self {
        let at = Some(at);
        Self { at, ..self }
    }

    /// The job as it is sent; the error says what it lacks. A row of `posthaste.outbox` goes under its own id and as its own payload.
    pub(crate) fn message(&self, job: Arc<Job>, id: Uuid) -> Result<Message, String> {
        self.of(outbox::unwrap(job, id)?)
    }

    /// The same of a job that is out of its envelope.
    pub(super) fn of(&self, parcel: Parcel) -> Result<Message, String> {
        let Parcel { job, id, bytes, .. } = parcel;
        let fill = |template: &Template| template.fill(&job, id);
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            headers.push((name.clone(), fill(value)?));
        }
        trace(job.kwargs_json(), &mut headers);
        Ok(Message {
            id,
            kind: fill(&self.kind)?,
            queue: self.queue.as_ref().map(fill).transpose()?,
            payload: self.payload.as_ref().map(fill).transpose()?,
            at: match &self.at {
                Some(at) => schedule::wanted(at, &job, id)?,
                None => None,
            },
            bytes: bytes.filter(|_| self.payload.is_none()),
            headers,
            job,
        })
    }
}

/// Carries the trace context that a job has among its arguments, unless the route gives one.
fn trace(kwargs: &str, headers: &mut Vec<(String, String)>) {
    for name in ["traceparent", "tracestate"] {
        if !kwargs.contains(name) || headers.iter().any(|(given, _)| given == name) {
            continue;
        }
        let is_carried = |value: &str| match name {
            "traceparent" => is_traceparent(value),
            _ => value.len() <= 512 && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        };
        match argument(kwargs, &[name.to_owned()], false) {
            Ok(value) if is_carried(&value) => headers.push((name.into(), value.into_owned())),
            _ => {}
        }
    }
}

/// As W3C Trace Context says: version, trace, span and flags.
fn is_traceparent(value: &str) -> bool {
    let mut parts = value.split('-');
    let is_hex = |part: Option<&str>, digits: usize| {
        part.is_some_and(|part| {
            part.len() == digits
                && part
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    is_hex(parts.next(), 2)
        && is_hex(parts.next(), 32)
        && is_hex(parts.next(), 16)
        && is_hex(parts.next(), 2)
        && parts.next().is_none()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::{Arguments, Mapping, Template};
    use crate::job::{Job, JobId};

    pub(crate) const ID: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_002a);

    /// A job that was enqueued at ten on a certain day.
    pub(crate) fn job(name: &str, kwargs: &str) -> Arc<Job> {
        let at: jiff::Timestamp = "2026-11-21T10:00:00Z".parse().expect("a time");
        Arc::new(Job {
            id: JobId(42),
            name: name.into(),
            queue: "mail".into(),
            priority: 0,
            enqueued_at: at,
            scheduled_at: at,
            expires_at: at,
            attempt: 0,
            max_attempts: Some(25),
            crashes: 0,
            tag: "signup".into(),
            unique_key: None,
            ordering_key: None,
            kwargs: kwargs.into(),
        })
    }

    fn message(kwargs: &str) -> super::Message {
        let made = Mapping::default().message(job("mail.send", kwargs), ID);
        made.expect("a message")
    }

    #[test]
    fn without_a_mapping_name_and_arguments_go_as_they_are() {
        let message = message(r#"{"to": "ada"}"#);
        assert_eq!(message.kind, "mail.send");
        assert_eq!(message.payload(), r#"{"to": "ada"}"#);
        assert_eq!((message.queue, message.headers), (None, Vec::new()));
    }

    #[test]
    fn a_lone_list_of_arguments_is_unwrapped() {
        let list = message(r#"{"args": [1, {"a": 2}]}"#);
        assert_eq!(list.arguments(), Arguments::List(r#"[1, {"a": 2}]"#));
        for kwargs in [r#"{"args": [1], "b": 2}"#, r#"{"args": 1}"#, "{}"] {
            let whole = message(kwargs);
            assert_eq!(whole.arguments(), Arguments::Payload(kwargs));
        }
        // Who takes any payload gets the list where the route says so.
        let list = Template::parse("{kwargs.args}").expect("a template");
        let job = job("mail.send", r#"{"args": [7, "welcome"]}"#);
        let made = Mapping::default().payload(list).message(job, ID);
        assert_eq!(made.expect("a message").body(), br#"[7, "welcome"]"#);
    }

    #[test]
    fn trace_context_among_the_arguments_is_carried() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let kwargs = format!(r#"{{"traceparent": "{parent}", "tracestate": "a=b"}}"#);
        let headers = [("traceparent", parent), ("tracestate", "a=b")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(message(&kwargs).headers, headers);
        assert_eq!(message(r#"{"traceparent": "00-x"}"#).headers, []);
        let mapping = Mapping::default().header("traceparent", Template::text("mine"));
        let made = mapping.message(job("a", &kwargs), ID).expect("a message");
        assert_eq!(made.headers[0].1, "mine");
    }
}
