//! Messages: the part of a job that is sent, and how it is made. Pure.

pub(crate) mod json;
pub(crate) mod mapping;
pub(crate) mod outbox;
pub(crate) mod schedule;
pub(crate) mod template;
pub(crate) mod trace;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use posthaste::{Job, JobId};
use serde_json::value::RawValue;
use uuid::Uuid;

/// A job in the form in which it is sent.
#[derive(Clone)]
pub struct Message {
    /// The delivery id: the same at each attempt. Receivers deduplicate by it.
    pub id: Uuid,
    /// The job.
    pub job: Arc<Job>,
    /// The kind of work in the receiver's terms: its class, type, task, routing key, subject or
    /// topic.
    pub kind: String,
    /// The receiver's queue or exchange, if the route sets one.
    pub queue: Option<String>,
    /// Headers that are sent with the payload, including the trace context.
    pub headers: Vec<(String, String)>,
    /// When the receiver runs it, if the route sets a time: at most
    /// [`Destination::max_lead_time`](crate::Destination::max_lead_time) from now, or in the past.
    pub at: Option<Timestamp>,
    /// The payload that the route makes of the arguments; `None` sends them unchanged.
    pub(crate) payload: Option<String>,
    /// A body that is not text.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// The payload is the arguments as they were enqueued, not a payload of the outbox.
    pub(crate) is_call: bool,
    /// Arguments that the route takes by name: they are not part of a call.
    pub(crate) taken: Arc<[String]>,
}

impl Message {
    /// Creates a message without a job, for programs that send by a
    /// [`Destination`](crate::Destination) themselves.
    ///
    /// ```
    /// use posthaste_relay::Message;
    /// # let id = "01900000-0000-7000-8000-00000000002a".parse().unwrap();
    /// let mail = Message::new(id, "welcome", "Dear Ada,").header("to", "ada@example.com");
    /// assert_eq!((mail.id, mail.payload()), (id, "Dear Ada,"));
    /// ```
    pub fn new(id: Uuid, kind: impl Into<String>, payload: impl Into<String>) -> Self {
        let kind = kind.into();
        let now = Timestamp::now();
        let mut job = Job::new(JobId(0), &kind, now, "{}");
        job.queue = "".into();
        Self {
            id,
            job: Arc::new(job),
            kind,
            queue: None,
            headers: Vec::new(),
            at: None,
            payload: Some(payload.into()),
            bytes: None,
            is_call: false,
            taken: Arc::default(),
        }
    }

    /// Adds a header, or replaces its value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        set_header(&mut self.headers, name.into(), value.into());
        self
    }

    /// Returns the message's body for receivers that accept any bytes.
    pub fn body(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.payload().as_bytes())
    }

    /// Returns the message's body for receivers that need a string. Bytes of `posthaste.outbox`
    /// that are not text are returned as hexadecimal digits.
    pub fn payload(&self) -> &str {
        self.payload
            .as_deref()
            .unwrap_or_else(|| self.job.kwargs_json())
    }

    /// Returns whether the payload is exactly one JSON value, whatever its origin. A payload of
    /// `posthaste.outbox`, a row that was read for it and the result of a template may be anything.
    /// Bytes that are not text are not JSON, even if their hexadecimal digits are.
    pub fn is_json(&self) -> bool {
        self.bytes.is_none() && json::is_json_value(self.payload())
    }

    /// Appends the payload to JSON: unchanged, or as a string if it is not JSON.
    #[cfg(any(
        feature = "bullmq",
        feature = "celery-rabbitmq",
        feature = "celery-redis",
        feature = "sidekiq"
    ))]
    pub(crate) fn append_payload(&self, json: &mut String) {
        match self.is_json() {
            true => json.push_str(self.payload()),
            false => json::put_text(json, self.payload()),
        }
    }

    /// Returns the media type of the body: JSON, text, or any bytes.
    #[cfg(any(feature = "rabbitmq", feature = "webhook"))]
    pub(crate) fn content_type(&self) -> &'static str {
        match (&self.bytes, self.is_json()) {
            (Some(_), _) => "application/octet-stream",
            (None, true) => "application/json",
            (None, false) => "text/plain; charset=utf-8",
        }
    }

    /// Returns the body if it is not text.
    pub(crate) fn binary_body(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// Returns why its headers cannot be sent beside those of the format; `own` returns the
    /// destination's objection to a name.
    #[cfg(any(
        feature = "amqp",
        feature = "celery-redis",
        feature = "kafka",
        feature = "nats",
        feature = "sidekiq"
    ))]
    pub(crate) fn header_problem(&self, own: impl Fn(&str) -> Option<String>) -> Option<String> {
        let names = self.headers.iter().map(|(name, _)| name);
        names.enumerate().find_map(|(n, name)| {
            let is_again = self.headers[..n].iter().any(|(before, _)| before == name);
            match is_again {
                true => Some(format!("the header {name:?} appears twice")),
                false => own(name).map(|why| format!("the header {name:?} {why}")),
            }
        })
    }

    /// Returns the payload as a list of arguments, for receivers that need one: an empty list for a
    /// job without arguments; the list in `{"args": […]}` if every other argument is one that the
    /// route takes by name (its time, a header) or sends as trace context; else the payload as the
    /// only argument.
    pub fn arguments(&self) -> Arguments<'_> {
        let payload = self.payload();
        if self.is_call && payload == "{}" {
            return Arguments::List("[]");
        }
        // A cheap check decides for most payloads.
        if payload.len() > 7 && payload.contains("\"args\"") {
            let fields: Result<HashMap<&str, &RawValue>, _> = serde_json::from_str(payload);
            if let Ok(fields) = fields
                && let Some(args) = fields.get("args")
                && args.get().starts_with('[')
                && fields
                    .keys()
                    .all(|name| *name == "args" || self.is_taken_by_route(name))
            {
                return Arguments::List(args.get());
            }
        }
        Arguments::Payload(payload)
    }

    fn is_taken_by_route(&self, name: &str) -> bool {
        let is_carried = self.payload.is_none() && TRACE_HEADERS.contains(&name);
        is_carried || self.taken.iter().any(|taken| taken == name)
    }
}

/// The names of the headers that carry a trace context.
pub(crate) const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Sets a header; a name occurs once, and the last value counts.
pub(crate) fn set_header<T>(headers: &mut Vec<(String, T)>, name: String, value: T) {
    match headers.iter_mut().find(|(given, _)| *given == name) {
        Some((_, given)) => *given = value,
        None => headers.push((name, value)),
    }
}

/// Arguments are omitted from logs.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("job", &self.job.id)
            .finish_non_exhaustive()
    }
}

/// A payload as the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arguments<'a> {
    /// A JSON list of positional arguments.
    List(&'a str),
    /// The unchanged payload: JSON, unless a template or the outbox made something else of it.
    Payload(&'a str),
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::Arguments;
    use crate::message::mapping::Mapping;
    use crate::message::template::Template;
    use posthaste::{Job, JobId};

    pub(crate) const ID: Uuid = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_002a);

    /// A job that was enqueued at a fixed time.
    pub(crate) fn job(name: &str, kwargs: &str) -> Arc<Job> {
        let at: jiff::Timestamp = "2026-11-21T10:00:00Z".parse().expect("a time");
        let mut job = Job::new(JobId(42), name, at, kwargs);
        job.queue = "mail".into();
        job.expires_at = at;
        job.max_attempts = Some(25);
        job.tag = "signup".into();
        Arc::new(job)
    }

    fn message(kwargs: &str) -> super::Message {
        let made = Mapping::default().message(job("mail.send", kwargs), ID);
        made.expect("a message")
    }

    #[test]
    fn name_and_arguments_are_sent_unchanged_by_default() {
        let message = message(r#"{"to": "ada"}"#);
        assert_eq!(message.kind, "mail.send");
        assert_eq!(message.payload(), r#"{"to": "ada"}"#);
        assert_eq!((message.queue, message.headers), (None, Vec::new()));
    }

    #[test]
    fn a_lone_list_of_arguments_is_unwrapped() {
        let list = message(r#"{"args": [1, {"a": 2}]}"#);
        assert_eq!(list.arguments(), Arguments::List(r#"[1, {"a": 2}]"#));
        for kwargs in [r#"{"args": [1], "b": 2}"#, r#"{"args": 1}"#] {
            let whole = message(kwargs);
            assert_eq!(whole.arguments(), Arguments::Payload(kwargs));
        }
        // A receiver that accepts any payload gets the list if the route's template names it.
        let list = Template::parse("{kwargs.args}").expect("a template");
        let job = job("mail.send", r#"{"args": [7, "welcome"]}"#);
        let made = Mapping::default().payload(list).message(job, ID);
        assert_eq!(made.expect("a message").body(), br#"[7, "welcome"]"#);
    }

    #[test]
    fn jobs_without_arguments_become_calls_without_arguments() {
        assert_eq!(message("{}").arguments(), Arguments::List("[]"));
        let mapping = Mapping::default().payload(Template::text("{}"));
        let given = mapping.message(job("a", "{}"), ID).expect("a message");
        assert_eq!(given.arguments(), Arguments::Payload("{}"));
    }

    #[test]
    fn arguments_that_the_route_takes_may_accompany_a_list() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let kwargs = format!(
            r#"{{"args": [1, 2], "at": "2999-01-01T00:00:00Z", "who": "ada",
                "traceparent": "{parent}"}}"#
        );
        let template = |text: &str| Template::parse(text).expect("a template");
        let mapping = Mapping::default().at(template("{kwargs.at}"));
        let sent = |mapping: &Mapping| mapping.message(job("a", &kwargs), ID).expect("a message");
        let one = sent(&mapping);
        assert_eq!(
            one.arguments(),
            Arguments::Payload(&kwargs),
            "nobody takes `who`"
        );
        let both = sent(&mapping.header("who", template("{json:kwargs.who}")));
        assert_eq!(both.arguments(), Arguments::List("[1, 2]"));
        assert!(both.at.is_some());
    }

    #[test]
    fn binary_payloads_pass_the_kwargs_template_unchanged() {
        let row = concat!(
            r#"{"posthaste.outbox": {"id": "01900000-0000-7000-8000-00000000002a", "#,
            r#""hex": "8812"}}"#
        );
        let all = Template::parse("{kwargs}").expect("a template");
        for mapping in [Mapping::default(), Mapping::default().payload(all)] {
            let message = mapping.message(job("a", row), ID).expect("a message");
            assert_eq!(
                (message.body(), message.payload()),
                (&[0x88, 0x12][..], "8812")
            );
            assert!(!message.is_json(), "its digits are not a number");
        }
    }
}
