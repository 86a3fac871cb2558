//! What a job is, and the one law of its states. No IO and no clock.

mod arguments;
mod delivery;
mod kind;
mod new;
mod outcome;
mod state;
mod trace;

pub(crate) use delivery::Epochs;
pub use kind::{IntoJob, JobArgs};
pub use new::NewJob;
pub(crate) use new::{DEFAULT_EXPIRY, text};
pub use outcome::Outcome;
pub use state::{Event, IllegalTransition, State, next};
pub use trace::is_traceparent;

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

/// A job's number, drawn by the database when it was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A job that was handed to a consumer.
#[derive(Clone)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// What kind of work it is; handlers are found by it.
    pub name: Box<str>,
    /// The queue it was claimed from.
    pub queue: std::sync::Arc<str>,
    /// Lower runs first.
    pub priority: i32,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it became due.
    pub scheduled_at: Timestamp,
    /// It is not claimed after this, and then waits in its worker for about a second at most.
    pub expires_at: Timestamp,
    /// Which attempt this is: the first is 1, and so it is wherever an attempt has a number. Only
    /// one that was counted is followed by the next.
    pub attempt: i32,
    /// How many attempts there may be; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Workers that died while they had it.
    pub crashes: i16,
    /// Which part of the program enqueued it.
    pub tag: Box<str>,
    /// The unique key it holds.
    pub unique_key: Option<Box<str>>,
    /// Its ordering key, if it has one: no other job of the key has begun, or begins before this
    /// one has ended for good.
    pub ordering_key: Option<Box<str>>,
    /// The trace context it was enqueued with: [`traceparent`](Self::traceparent) and
    /// [`tracestate`](Self::tracestate) are its parts.
    pub trace: Option<Box<str>>,
    pub(crate) kwargs: Box<str>,
}

impl Job {
    /// A job of the queue `default` that nobody has enqueued, for those who read jobs by themselves
    /// and for tests. Other fields have defaults and may be set.
    pub fn new(id: JobId, name: &str, enqueued_at: Timestamp, kwargs: &str) -> Self {
        Self {
            id,
            name: name.into(),
            queue: "default".into(),
            priority: 0,
            enqueued_at,
            scheduled_at: enqueued_at,
            expires_at: Timestamp::MAX,
            attempt: 1,
            max_attempts: None,
            crashes: 0,
            tag: "".into(),
            unique_key: None,
            ordering_key: None,
            trace: None,
            kwargs: kwargs.into(),
        }
    }

    /// The same with other arguments, which are this text.
    pub fn with_kwargs_json(self, kwargs: impl Into<Box<str>>) -> Self {
        let kwargs = kwargs.into();
        Self { kwargs, ..self }
    }

    /// Attempts counted before this one.
    pub(crate) fn attempts_counted(&self) -> i32 {
        self.attempt.saturating_sub(1)
    }

    /// The arguments, read as `T`.
    pub fn kwargs<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.kwargs)
    }

    /// As [`kwargs`](Self::kwargs), with an error that begins with the path of what cannot be read,
    /// such as `kwargs.to[1].address`.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, Misread> {
        let mut text = serde_json::Deserializer::from_str(&self.kwargs);
        serde_path_to_error::deserialize(&mut text).map_err(|error| {
            let argument = match error.path().to_string() {
                whole if whole == "." => "kwargs".into(),
                field => format!("kwargs.{field}"),
            };
            let why = error.inner().to_string();
            Misread { argument, why }
        })
    }

    /// The arguments as the JSON text that the database keeps: equal in meaning to what was
    /// enqueued, not byte for byte.
    pub fn kwargs_json(&self) -> &str {
        &self.kwargs
    }
}

/// An argument is not what it is read as. Which one, and why, may say what it is, and is for no
/// log.
#[derive(Debug, thiserror::Error)]
#[error("{argument}: {why}")]
pub struct Misread {
    pub(crate) argument: String,
    pub(crate) why: String,
}

/// Arguments stay out of logs.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
