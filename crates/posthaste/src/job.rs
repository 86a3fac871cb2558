//! What a job is, and the one law of its states. No IO and no clock.

mod arguments;
mod delivery;
mod state;

pub(crate) use delivery::Incarnations;
pub use state::{Event, IllegalTransition, State, next};

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// Attempts that may be burnt where nothing else is said; the database's default too.
const DEFAULT_ATTEMPTS: i32 = 25;
/// From when a job is due until it expires where nothing is said: 30 days, by the database's default.
pub(crate) const DEFAULT_EXPIRY: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Bytes of a job on the wire beside its texts: numbers, times, lengths.
const BESIDES: usize = 64;

/// A job's number, drawn by the database when it was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A job to be enqueued.
///
/// ```
/// use posthaste::NewJob;
/// # fn main() -> Result<(), posthaste::Error> {
/// let job = NewJob::new("index.document", &serde_json::json!({ "id": 7 }))?
///     .priority(100)
///     .tag("reindex")
///     .max_attempts(None); // tried until it expires, after 30 days
/// assert!(NewJob::new("", &serde_json::json!({})).is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct NewJob {
    pub(crate) name: String,
    pub(crate) kwargs: String,
    /// As the database prints them, at most: a key that comes twice and an escaped character are counted as they stand.
    pub(crate) kwargs_bytes: i32,
    pub(crate) queue: Option<String>,
    pub(crate) priority: i32,
    pub(crate) scheduled_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) tag: String,
    pub(crate) unique_key: Option<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) max_attempts: Option<i32>,
}

impl NewJob {
    /// A job of this name with these arguments, which must serialise to a JSON object.
    ///
    /// Everything Postgres would refuse later, in the middle of the caller's transaction, is refused here: a name that is empty or longer
    /// than 255 bytes, arguments beyond 1 MiB as the database prints them or 64 levels, NUL characters, lone surrogates, numbers outside 1e±400 or
    /// with more than 16,383 decimals. What the setters are given is refused when the job is enqueued, before anything is sent.
    pub fn new<T: Serialize + ?Sized>(name: impl Into<String>, kwargs: &T) -> Result<Self, Error> {
        let name = name.into();
        text("name", &name, 1, 255)?;
        let kwargs = serde_json::to_string(kwargs)
            .map_err(|error| Error::invalid("kwargs", error.to_string()))?;
        let kwargs_bytes = arguments::check(&kwargs);
        let kwargs_bytes = kwargs_bytes.map_err(|reason| Error::invalid("kwargs", reason))?;
        Ok(Self {
            name,
            kwargs,
            kwargs_bytes,
            queue: None,
            priority: 0,
            scheduled_at: None,
            expires_at: None,
            tag: String::new(),
            unique_key: None,
            ordering_key: None,
            max_attempts: Some(DEFAULT_ATTEMPTS),
        })
    }

    /// The queue; without it `posthaste.route` decides by the job's name.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Lower runs first; any integer.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Not before this instant, by the server's clock.
    pub fn scheduled_at(mut self, at: Timestamp) -> Self {
        self.scheduled_at = Some(at);
        self
    }

    /// Never started after this instant; the default is 30 days after it is due.
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Which part of the program enqueued it; shown in listings and metrics.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// At most one unfinished job holds a key; a second enqueue returns the first one's id.
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// Jobs with the same key run one at a time, in the order in which they were enqueued, whatever their queues and priorities are: each begins
    /// when the one before it is done, dead, discarded, expired or cancelled. One that is retried, snoozed or awaited keeps the others waiting. A
    /// thousand keys run side by side. 1 to 1024 bytes.
    ///
    /// Of two jobs, the one enqueued by a transaction that had committed before the other's began is first. The promise is that of deliveries: a
    /// worker that is taken for dead while it only hangs may still be at its job when the job is run again.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// How many attempts may be burnt; `None` for as many as fit before it expires.
    pub fn max_attempts(mut self, attempts: Option<i32>) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Nothing is said but name and arguments.
    pub(crate) fn is_plain(&self) -> bool {
        self.queue.is_none()
            && self.priority == 0
            && self.scheduled_at.is_none()
            && self.expires_at.is_none()
            && self.tag.is_empty()
            && self.unique_key.is_none()
            && self.ordering_key.is_none()
            && self.max_attempts == Some(DEFAULT_ATTEMPTS)
    }

    /// What the setters could not refuse; called before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(queue) = &self.queue {
            text("queue", queue, 1, 255)?;
        }
        text("tag", &self.tag, 0, 255)?;
        if let Some(key) = &self.unique_key {
            text("unique_key", key, 1, 1024)?;
        }
        if let Some(key) = &self.ordering_key {
            text("ordering_key", key, 1, 1024)?;
        }
        if self.max_attempts.is_some_and(|attempts| attempts < 1) {
            return Err(Error::invalid(
                "max_attempts",
                "must be at least 1, or none for no limit",
            ));
        }
        let expires = self.expires_at.or_else(|| self.default_expiry());
        instant("scheduled_at", self.scheduled_at)?;
        instant("expires_at", expires)
    }

    /// When the database lets it expire by itself; a time that cannot be written down is refused as the one it is counted from.
    fn default_expiry(&self) -> Option<Timestamp> {
        let due = self.scheduled_at?;
        due.checked_add(DEFAULT_EXPIRY).ok()
    }

    /// About as many bytes as it is sent with.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.queue, &self.unique_key, &self.ordering_key];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        BESIDES + self.name.len() + self.kwargs.len() + self.tag.len() + texts
    }
}

/// Arguments stay out of logs.
impl fmt::Debug for NewJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJob")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

fn text(field: &'static str, value: &str, min: usize, max: usize) -> Result<(), Error> {
    if value.len() < min || value.len() > max {
        return Err(Error::invalid(
            field,
            format!("must have {min} to {max} bytes"),
        ));
    }
    if value.contains('\0') {
        return Err(Error::invalid(field, "must not contain NUL"));
    }
    Ok(())
}

/// Times are those that all clients of the database can read.
fn instant(field: &'static str, at: Option<Timestamp>) -> Result<(), Error> {
    // The first second of year 1, and of year 9999.
    const YEARS: std::ops::Range<i64> = -62_135_596_800..253_370_764_800;
    if at.is_some_and(|at| !YEARS.contains(&at.as_microsecond().div_euclid(1_000_000))) {
        return Err(Error::invalid(field, "must lie in the years 1 to 9998"));
    }
    Ok(())
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
    /// It is never started after this.
    pub expires_at: Timestamp,
    /// Attempts burnt before this one; 0 at the first.
    pub attempt: i32,
    /// How many attempts may be burnt; `None` for no limit.
    pub max_attempts: Option<i32>,
    /// Workers that died while they had it.
    pub crashes: i16,
    /// Which part of the program enqueued it.
    pub tag: Box<str>,
    /// The unique key it holds.
    pub unique_key: Option<Box<str>>,
    /// Its ordering key, if it has one: no other job of the key has begun, or begins before this one has ended for good.
    pub ordering_key: Option<Box<str>>,
    pub(crate) kwargs: Box<str>,
}

impl Job {
    /// The arguments, read as `T`.
    pub fn kwargs<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.kwargs)
    }

    /// As [`kwargs`](Self::kwargs), with an error that begins with the way to what cannot be read, such as `kwargs.to[1].address`.
    pub(crate) fn arguments<T: DeserializeOwned>(&self) -> Result<T, String> {
        let mut text = serde_json::Deserializer::from_str(&self.kwargs);
        serde_path_to_error::deserialize(&mut text).map_err(|error| {
            let way = match error.path().to_string() {
                whole if whole == "." => "kwargs".into(),
                field => format!("kwargs.{field}"),
            };
            format!("{way}: {}", error.inner())
        })
    }

    /// The arguments as the JSON text that the database keeps: equal in meaning to what was enqueued, not byte for byte.
    pub fn kwargs_json(&self) -> &str {
        &self.kwargs
    }
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::NewJob;

    fn refused(job: &NewJob) -> Option<String> {
        job.check().err().map(|error| error.to_string())
    }

    #[test]
    fn times_beyond_the_years_1_to_9998_are_refused_before_anything_is_sent() {
        let job = || NewJob::new("x", &serde_json::json!({})).expect("a job");
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let (first, last) = (
            at("0001-01-01T00:00:00Z"),
            at("9998-12-31T23:59:59.999999Z"),
        );
        let (before, after) = (
            at("0000-12-31T23:59:59.999999Z"),
            at("9999-01-01T00:00:00Z"),
        );
        assert_eq!(refused(&job().scheduled_at(first).expires_at(last)), None);
        assert_eq!(refused(&job().scheduled_at(last).expires_at(last)), None);
        for time in [before, after, Timestamp::MIN, Timestamp::MAX] {
            let scheduled = refused(&job().scheduled_at(time)).expect("a refusal");
            assert!(scheduled.starts_with("scheduled_at"), "{scheduled}");
            let expires = refused(&job().expires_at(time)).expect("a refusal");
            assert!(expires.starts_with("expires_at"), "{expires}");
        }
        // It would expire 30 days later.
        let expires = refused(&job().scheduled_at(last)).expect("a refusal");
        assert!(expires.starts_with("expires_at"), "{expires}");
    }
}
