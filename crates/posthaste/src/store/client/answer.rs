//! Deserializes the answers of [`super`]: mirrors of the public types, which do not expose serde.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::counters::{Counter, Counters, Oldest};
use crate::history::{Failure, FoundJob, ListedJob};
use crate::job::{JobId, State};

#[derive(Deserialize)]
pub(super) struct Found(#[serde(with = "FoundRow")] pub(super) FoundJob);

#[derive(Deserialize)]
pub(super) struct Listed(#[serde(with = "ListedRow")] pub(super) ListedJob);

#[derive(Deserialize)]
pub(super) struct Attempt(#[serde(with = "FailureRow")] pub(super) Failure);

/// A job and its state after the call.
#[derive(Deserialize)]
pub(super) struct ChangedJob(i64, #[serde(deserialize_with = "deserialize_text")] State);

impl From<ChangedJob> for (JobId, State) {
    fn from(met: ChangedJob) -> Self {
        (JobId(met.0), met.1)
    }
}

#[derive(Deserialize)]
pub(super) struct Counted {
    jobs: Vec<CountedJobs>,
    oldest: Vec<CountedOldest>,
    paused: Vec<String>,
    is_partial: bool,
}

#[derive(Deserialize)]
struct CountedJobs(#[serde(with = "CounterRow")] Counter);

#[derive(Deserialize)]
struct CountedOldest(#[serde(with = "OldestRow")] Oldest);

impl From<Counted> for Counters {
    fn from(counted: Counted) -> Self {
        Self {
            jobs: counted.jobs.into_iter().map(|one| one.0).collect(),
            oldest: counted.oldest.into_iter().map(|one| one.0).collect(),
            paused: counted.paused,
            is_partial: counted.is_partial,
        }
    }
}

#[derive(Deserialize)]
#[serde(remote = "FoundJob")]
struct FoundRow {
    #[serde(deserialize_with = "deserialize_id")]
    id: JobId,
    name: String,
    queue: String,
    priority: i32,
    #[serde(deserialize_with = "deserialize_time")]
    scheduled_at: Timestamp,
    #[serde(deserialize_with = "deserialize_time")]
    expires_at: Timestamp,
    #[serde(deserialize_with = "deserialize_time")]
    enqueued_at: Timestamp,
    tag: String,
    unique_key: Option<String>,
    ordering_key: Option<String>,
    trace: Option<String>,
    #[serde(rename = "attempt")]
    attempts: i32,
    max_attempts: Option<i32>,
    #[serde(deserialize_with = "deserialize_text")]
    state: State,
    last_error: Option<String>,
    worker: Option<i64>,
    worker_name: Option<String>,
    #[serde(deserialize_with = "deserialize_optional_time")]
    claimed_at: Option<Timestamp>,
    #[serde(deserialize_with = "deserialize_optional_time")]
    ended_at: Option<Timestamp>,
    #[serde(deserialize_with = "deserialize_text")]
    delivery_id: Uuid,
    #[serde(deserialize_with = "deserialize_raw_json")]
    kwargs: String,
}

#[derive(Deserialize)]
#[serde(remote = "ListedJob")]
struct ListedRow {
    #[serde(deserialize_with = "deserialize_id")]
    id: JobId,
    name: String,
    queue: String,
    priority: i32,
    #[serde(deserialize_with = "deserialize_time")]
    scheduled_at: Timestamp,
    #[serde(deserialize_with = "deserialize_time")]
    expires_at: Timestamp,
    #[serde(deserialize_with = "deserialize_time")]
    enqueued_at: Timestamp,
    tag: String,
    unique_key: Option<String>,
    ordering_key: Option<String>,
    #[serde(rename = "attempt")]
    attempts: i32,
    max_attempts: Option<i32>,
    #[serde(deserialize_with = "deserialize_text")]
    state: State,
    last_error: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "Failure")]
struct FailureRow {
    attempt: i32,
    #[serde(deserialize_with = "deserialize_time")]
    at: Timestamp,
    outcome: String,
    worker: Option<i64>,
    worker_name: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "Counter")]
struct CounterRow {
    queue: String,
    priority: i32,
    name: String,
    tag: String,
    available: i64,
    blocked: i64,
    scheduled: i64,
    retrying: i64,
    running: i64,
    awaiting: i64,
    quarantined: i64,
    dead: i64,
    discarded: i64,
    expired: i64,
    cancelled: i64,
    completed_total: i64,
    failed_total: i64,
    retried_total: i64,
    dead_total: i64,
    discarded_total: i64,
    expired_total: i64,
    cancelled_total: i64,
}

#[derive(Deserialize)]
#[serde(remote = "Oldest")]
struct OldestRow {
    queue: String,
    priority: i32,
    #[serde(deserialize_with = "deserialize_time")]
    since: Timestamp,
    seconds: f64,
    is_worked: bool,
}

fn deserialize_id<'de, D: Deserializer<'de>>(from: D) -> Result<JobId, D::Error> {
    i64::deserialize(from).map(JobId)
}

/// Deserializes a value that Postgres writes as text in JSON.
fn deserialize_text<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Cow::<str>::deserialize(from)?;
    text.parse().map_err(D::Error::custom)
}

fn deserialize_time<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = Cow::<str>::deserialize(from)?;
    parse_time(&text).map_err(D::Error::custom)
}

fn deserialize_optional_time<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Cow<str>>::deserialize(from)?;
    let read = text.map(|text| parse_time(&text).map_err(D::Error::custom));
    read.transpose()
}

/// Parses a time with the offset of the session's time zone. West of Greenwich the first hours of
/// year 1, in which times of jobs begin, are written in the year before: 1 BC, which is year 0.
fn parse_time(text: &str) -> Result<Timestamp, jiff::Error> {
    match text
        .strip_suffix(" BC")
        .and_then(|rest| rest.strip_prefix("0001"))
    {
        Some(rest) => format!("0000{rest}").parse(),
        None => text.parse(),
    }
}

/// Returns the text of the arguments without parsing it, so that no number loses precision.
fn deserialize_raw_json<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = Box::<RawValue>::deserialize(from)?;
    Ok(Box::<str>::from(text).into())
}
