//! Jobs and the transitions between their states. No IO and no clock.

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
pub(crate) use new::{DEFAULT_EXPIRES_AFTER, check_text};
pub use outcome::Outcome;
pub use state::{Event, IllegalTransition, State, next};
pub use trace::is_traceparent;

use std::fmt;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

/// The number of a job, assigned by the database at enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A job that a worker claimed.
#[derive(Clone)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The kind of work, by which its handler is found.
    pub name: Box<str>,
    /// The queue it was claimed from.
    pub queue: std::sync::Arc<str>,
    /// The priority: lower runs first.
    pub priority: i32,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// When it became due.
    pub scheduled_at: Timestamp,
    /// The time after which it is not claimed. A worker returns it if it has then waited there for
    /// more than approximately a second.
    pub expires_at: Timestamp,
    /// The number of this attempt, from 1. It increases only after an attempt that was counted.
    pub attempt: i32,
    /// The most attempts; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Workers that died while they ran it or had claimed it.
    pub crashes: i16,
    /// The part of the program that enqueued it.
    pub tag: Box<str>,
    /// The unique key it holds.
    pub unique_key: Option<Box<str>>,
    /// Its ordering key, if it has one: no other job of the key runs before this one has ended for
    /// good.
    pub ordering_key: Option<Box<str>>,
    /// The trace context with which it was enqueued: [`traceparent`](Self::traceparent) and
    /// [`tracestate`](Self::tracestate) return its parts.
    pub trace: Option<Box<str>>,
    pub(crate) kwargs: Box<str>,
}

impl Job {
    /// Creates a job of the queue `default` that was never enqueued, for programs that read jobs
    /// themselves and for tests. Other fields have defaults and can be set.
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

    /// Replaces the arguments by this JSON text.
    pub fn with_kwargs_json(self, kwargs: impl Into<Box<str>>) -> Self {
        let kwargs = kwargs.into();
        Self { kwargs, ..self }
    }

    /// Returns how many attempts were counted before this one.
    pub(crate) fn attempts_counted(&self) -> i32 {
        self.attempt.saturating_sub(1)
    }

    /// Deserializes the arguments.
    pub fn kwargs<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.kwargs)
    }

    /// Deserializes the arguments as [`kwargs`](Self::kwargs) does. An error begins with the path
    /// of the invalid argument, such as `kwargs.to[1].address`.
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

    /// Returns the arguments as the JSON text that the database stores: equal in meaning to the
    /// enqueued text, not byte for byte.
    pub fn kwargs_json(&self) -> &str {
        &self.kwargs
    }
}

/// The error for an argument that cannot be deserialized. Its message may contain the argument's
/// value, so it does not belong in a log.
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
