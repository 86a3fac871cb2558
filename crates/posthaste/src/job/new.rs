//! A job to be enqueued, and what it may be.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{arguments, trace};
use crate::error::Error;

/// The default number of attempts, also in the database.
const DEFAULT_ATTEMPTS: i32 = 25;
/// The default time from when a job is due until it expires: 30 days, by the database's
/// default.
pub(crate) const DEFAULT_EXPIRY: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Bytes of a job on the wire beside its texts: numbers, times, lengths.
const BESIDES: usize = 64;

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
    /// As the database prints them, at most: a key that comes twice and an escaped character are
    /// counted as they stand.
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
    /// What is wrong with its name or arguments, for the one that enqueues it.
    refused: Option<(&'static str, String)>,
}

impl NewJob {
    /// A job of this name with these arguments, which must serialise to a JSON object.
    ///
    /// Everything Postgres would refuse later, in the middle of the caller's transaction, is
    /// refused here: a name that is empty or longer than 255 bytes, arguments beyond 1 MiB as the
    /// database prints them or 64 levels, NUL characters, lone surrogates, numbers outside 1e±400
    /// or with more than 16,383 decimals. What the setters are given is refused when the job is
    /// enqueued, before anything is sent.
    pub fn new<T: Serialize + ?Sized>(name: impl Into<String>, kwargs: &T) -> Result<Self, Error> {
        let job = Self::unchecked(name.into(), kwargs);
        job.allowed()?;
        Ok(job)
    }

    /// As [`new`](Self::new); `enqueue` returns what is wrong.
    pub(super) fn unchecked<T: Serialize + ?Sized>(name: String, kwargs: &T) -> Self {
        let (kwargs, kwargs_bytes, refused) = match checked(&name, kwargs) {
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

    /// Not before this much time has passed, counted by this machine's clock from the moment when
    /// the job is enqueued; `enqueue_copy` takes the server's. An instant given by
    /// [`scheduled_at`](Self::scheduled_at) goes before it.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Not claimed after this instant, and given back by a worker in which it has waited for a
    /// second or so; the default is 30 days after it is due.
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

    /// Jobs with the same key run one at a time, in the order in which they were enqueued, whatever
    /// their queues and priorities are: each begins when the one before it is done, dead,
    /// discarded, expired or cancelled. One that is retried, snoozed or awaited keeps the others
    /// waiting. A thousand keys run side by side. 1 to 1024 bytes.
    ///
    /// Of two jobs, the one enqueued by a transaction that had committed before the other's began
    /// is first. The promise is that of deliveries: a worker that is taken for dead while it only
    /// hangs may still be at its job when the job is run again.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// How many attempts there may be; `None` for as many as fit before it expires.
    pub fn max_attempts(mut self, attempts: Option<i32>) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// The trace that enqueued it, for the handler or receiver: the `traceparent` of
    /// [W3C Trace Context](https://www.w3.org/TR/trace-context/), version 00 in lower case, and
    /// after a space the `tracestate` if there is one; at most 600 bytes. An id of zeros only is
    /// taken too: receivers ignore it.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.trace = Some(traceparent.into());
        self
    }

    /// Only name and arguments are given.
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

    /// A time to run is given.
    pub(crate) fn has_times(&self) -> bool {
        self.scheduled_at.is_some() || self.expires_at.is_some() || !self.delay.is_zero()
    }

    /// The job with its delay turned into an instant; nothing where it has none.
    pub(crate) fn scheduled_from(&self, now: Timestamp) -> Option<Self> {
        (self.scheduled_at.is_none() && !self.delay.is_zero()).then(|| Self {
            // Beyond the last instant there is, which is refused.
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

    /// What the setters could not refuse; called before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.allowed()?;
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
        if let Some(trace) = &self.trace {
            trace::check(trace)?;
        }
        if self.max_attempts.is_some_and(|attempts| attempts < 1) {
            return Err(Error::invalid(
                "max_attempts",
                "must be at least 1, or none for no limit",
            ));
        }
        instant("scheduled_at", self.scheduled_at)?;
        match (self.expires_at, self.scheduled_at) {
            (None, Some(due)) if !fits(due.checked_add(DEFAULT_EXPIRY).ok()) => {
                Err(Error::invalid("scheduled_at", NO_EXPIRY))
            }
            (expires, _) => instant("expires_at", expires),
        }
    }

    /// About as many bytes as it is sent with.
    pub fn bytes(&self) -> usize {
        let keys = [&self.unique_key, &self.ordering_key];
        let texts = [&self.queue, &self.trace].into_iter().chain(keys);
        let texts: usize = texts.flatten().map(String::len).sum();
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

/// Arguments as they are sent, and their bytes as the database prints them; or the field that is
/// refused, and why.
fn checked<T: Serialize + ?Sized>(
    name: &str,
    kwargs: &T,
) -> Result<(String, i32), (&'static str, String)> {
    readable(name, 1, 255).map_err(|reason| ("name", reason))?;
    let kwargs = serde_json::to_string(kwargs).map_err(|error| ("kwargs", error.to_string()))?;
    let bytes = arguments::check(&kwargs).map_err(|reason| ("kwargs", reason))?;
    Ok((kwargs, bytes))
}

pub(crate) fn text(field: &'static str, value: &str, min: usize, max: usize) -> Result<(), Error> {
    readable(value, min, max).map_err(|reason| Error::invalid(field, reason))
}

fn readable(value: &str, min: usize, max: usize) -> Result<(), String> {
    if value.len() < min || value.len() > max {
        return Err(format!("must have {min} to {max} bytes"));
    }
    if value.contains('\0') {
        return Err("must not contain NUL".into());
    }
    Ok(())
}

const NO_EXPIRY: &str = "must lie 30 days before the year 9999, unless expires_at is given";

/// Times are those that all clients of the database can read.
fn instant(field: &'static str, at: Option<Timestamp>) -> Result<(), Error> {
    if at.is_some() && !fits(at) {
        return Err(Error::invalid(field, "must lie in the years 1 to 9998"));
    }
    Ok(())
}

fn fits(at: Option<Timestamp>) -> bool {
    // The first second of year 1, and of year 9999.
    const YEARS: std::ops::Range<i64> = -62_135_596_800..253_370_764_800;
    at.is_some_and(|at| YEARS.contains(&at.as_microsecond().div_euclid(1_000_000)))
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
        // It would expire 30 days later, which its caller never asked for.
        let scheduled = refused(&job().scheduled_at(last)).expect("a refusal");
        assert!(scheduled.starts_with("scheduled_at"), "{scheduled}");
    }
}
