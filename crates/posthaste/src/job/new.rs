//! A job to be enqueued, and the limits of its fields.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{arguments, trace};
use crate::error::Error;

/// The default limit of attempts, also in the database.
const DEFAULT_ATTEMPTS: i32 = 25;
/// The default time from when a job is due until it expires: 30 days, as in the database.
pub(crate) const DEFAULT_EXPIRES_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Bytes of a job on the wire in addition to its texts: numbers, times, lengths.
const FIXED_BYTES: usize = 64;

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
    /// The most bytes that the database prints for them: duplicate keys and escaped characters are
    /// counted as written.
    pub(crate) kwargs_bytes: i32,
    pub(crate) queue: Option<String>,
    pub(crate) priority: i32,
    pub(crate) scheduled_at: Option<Timestamp>,
    delay: Duration,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) tag: String,
    pub(crate) unique_key: Option<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) trace: Option<String>,
    /// The rejected field and the reason, returned by `enqueue`.
    refused: Option<(&'static str, String)>,
}

impl NewJob {
    /// Creates a job of this name with these arguments, which must serialize to a JSON object.
    ///
    /// Rejects everything that Postgres would reject later, in the middle of the caller's
    /// transaction: a name that is empty or longer than 255 bytes, arguments beyond 1 MiB as the
    /// database prints them, more than 64 levels of nesting, NUL characters, lone surrogates,
    /// numbers outside 1e±400, numbers with more than 16,383 decimals. Values of the setters are
    /// checked when the job is enqueued, before anything is sent.
    pub fn new<T: Serialize + ?Sized>(name: impl Into<String>, kwargs: &T) -> Result<Self, Error> {
        let job = Self::unchecked(name.into(), kwargs);
        job.allowed()?;
        Ok(job)
    }

    /// As [`new`](Self::new), but `enqueue` returns the error.
    pub(super) fn unchecked<T: Serialize + ?Sized>(name: String, kwargs: &T) -> Self {
        let (kwargs, kwargs_bytes, refused) = match check_arguments(&name, kwargs) {
            Ok((kwargs, bytes)) => (kwargs, bytes, None),
            Err(refused) => (String::new(), 0, Some(refused)),
        };
        Self {
            name,
            kwargs,
            kwargs_bytes,
            queue: None,
            priority: 0,
            scheduled_at: None,
            delay: Duration::ZERO,
            expires_at: None,
            tag: String::new(),
            unique_key: None,
            ordering_key: None,
            max_attempts: Some(DEFAULT_ATTEMPTS),
            trace: None,
            refused,
        }
    }

    /// Sets the queue; without it, `posthaste.route` chooses the queue by the job's name.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the priority, any integer: lower runs first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets when the job is due, by the server's clock.
    pub fn scheduled_at(mut self, at: Timestamp) -> Self {
        self.scheduled_at = Some(at);
        self
    }

    /// Sets after which time the job is due, measured by this machine's clock from the moment when
    /// the job is enqueued; `enqueue_copy` uses the server's clock. An instant set by
    /// [`scheduled_at`](Self::scheduled_at) takes precedence.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets after which instant the job is not claimed. A worker returns an expired job that has
    /// waited there for more than approximately a second. The default is 30 days after it is due.
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Sets the part of the program that enqueues it; shown in listings and metrics.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// Sets the unique key: at most one unfinished job holds a key. Enqueueing another one returns
    /// the first job's id.
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// Sets the ordering key, of 1 to 1024 bytes. Jobs with the same key run one at a time, in the
    /// order in which they were enqueued, regardless of their queues and priorities: each begins
    /// when the one before it is done, dead, discarded, expired or cancelled. A job that is
    /// retried, snoozed or awaited keeps the others waiting. Jobs of different keys run in
    /// parallel.
    ///
    /// Of two jobs, the one whose transaction committed before the other's transaction began is
    /// first. The order is that of deliveries: a worker that was declared dead while it only hangs
    /// may still run its job when the job runs again.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets the limit of attempts; `None` for no limit before it expires.
    pub fn max_attempts(mut self, attempts: Option<i32>) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets the trace context for the handler or receiver: the `traceparent` of [W3C Trace
    /// Context](https://www.w3.org/TR/trace-context/), version 00 in lower case, optionally
    /// followed by a space and the `tracestate`; at most 600 bytes. An id of zeros only is
    /// accepted: receivers ignore it.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Whether only name and arguments are set.
    pub(crate) fn is_plain(&self) -> bool {
        self.queue.is_none()
            && self.priority == 0
            && self.scheduled_at.is_none()
            && self.delay.is_zero()
            && self.expires_at.is_none()
            && self.tag.is_empty()
            && self.unique_key.is_none()
            && self.ordering_key.is_none()
            && self.trace.is_none()
            && self.max_attempts == Some(DEFAULT_ATTEMPTS)
    }

    /// Whether a time to run or to expire is set.
    pub(crate) fn has_times(&self) -> bool {
        self.scheduled_at.is_some() || self.expires_at.is_some() || !self.delay.is_zero()
    }

    /// Returns the job with its delay turned into an instant; `None` if it has no delay.
    pub(crate) fn scheduled_from(&self, now: Timestamp) -> Option<Self> {
        (self.scheduled_at.is_none() && !self.delay.is_zero()).then(|| Self {
            // Beyond the largest timestamp, which `check` rejects.
            scheduled_at: Some(now.checked_add(self.delay).unwrap_or(Timestamp::MAX)),
            ..self.clone()
        })
    }

    fn allowed(&self) -> Result<(), Error> {
        match &self.refused {
            Some((field, reason)) => Err(Error::invalid(field, reason.clone())),
            None => Ok(()),
        }
    }

    /// Checks the values of the setters; called before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.allowed()?;
        if let Some(queue) = &self.queue {
            check_text("queue", queue, 1, 255)?;
        }
        check_text("tag", &self.tag, 0, 255)?;
        if let Some(key) = &self.unique_key {
            check_text("unique_key", key, 1, 1024)?;
        }
        if let Some(key) = &self.ordering_key {
            check_text("ordering_key", key, 1, 1024)?;
        }
        if let Some(trace) = &self.trace {
            trace::check(trace)?;
        }
        if self.max_attempts.is_some_and(|attempts| attempts < 1) {
            return Err(Error::invalid(
                "max_attempts",
                "must be at least 1, or none for no limit",
            ));
        }
        check_time("scheduled_at", self.scheduled_at)?;
        match (self.expires_at, self.scheduled_at) {
            (None, Some(due)) if !is_valid_time(due.checked_add(DEFAULT_EXPIRES_AFTER).ok()) => {
                Err(Error::invalid("scheduled_at", NO_EXPIRY))
            }
            (expires, _) => check_time("expires_at", expires),
        }
    }

    /// Returns the approximate size of the message that enqueues it, in bytes.
    pub fn bytes(&self) -> usize {
        let keys = [&self.unique_key, &self.ordering_key];
        let texts = [&self.queue, &self.trace].into_iter().chain(keys);
        let texts: usize = texts.flatten().map(String::len).sum();
        FIXED_BYTES + self.name.len() + self.kwargs.len() + self.tag.len() + texts
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

/// Returns the arguments as they are sent and their size in bytes as the database prints them, or
/// the rejected field and the reason.
fn check_arguments<T: Serialize + ?Sized>(
    name: &str,
    kwargs: &T,
) -> Result<(String, i32), (&'static str, String)> {
    check_readable(name, 1, 255).map_err(|reason| ("name", reason))?;
    let kwargs = serde_json::to_string(kwargs).map_err(|error| ("kwargs", error.to_string()))?;
    let bytes = arguments::check(&kwargs).map_err(|reason| ("kwargs", reason))?;
    Ok((kwargs, bytes))
}

pub(crate) fn check_text(
    field: &'static str,
    value: &str,
    min: usize,
    max: usize,
) -> Result<(), Error> {
    check_readable(value, min, max).map_err(|reason| Error::invalid(field, reason))
}

fn check_readable(value: &str, min: usize, max: usize) -> Result<(), String> {
    if value.len() < min || value.len() > max {
        return Err(format!("must have {min} to {max} bytes"));
    }
    if value.contains('\0') {
        return Err("must not contain NUL".into());
    }
    Ok(())
}

const NO_EXPIRY: &str = "must be 30 days before the year 9999, unless expires_at is given";

/// Checks that all clients of the database can read the time.
fn check_time(field: &'static str, at: Option<Timestamp>) -> Result<(), Error> {
    if at.is_some() && !is_valid_time(at) {
        return Err(Error::invalid(field, "must be in the years 1 to 9998"));
    }
    Ok(())
}

fn is_valid_time(at: Option<Timestamp>) -> bool {
    // The first second of year 1, and of year 9999.
    const VALID_SECONDS: std::ops::Range<i64> = -62_135_596_800..253_370_764_800;
    at.is_some_and(|at| VALID_SECONDS.contains(&at.as_microsecond().div_euclid(1_000_000)))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::NewJob;

    fn refused(job: &NewJob) -> Option<String> {
        job.check().err().map(|error| error.to_string())
    }

    #[test]
    fn rejects_times_outside_years_1_to_9998_before_sending() {
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
        // It would expire 30 days later, outside these years.
        let scheduled = refused(&job().scheduled_at(last)).expect("a refusal");
        assert!(scheduled.starts_with("scheduled_at"), "{scheduled}");
    }
}
