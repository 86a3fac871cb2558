//! Sidekiq: jobs as its Ruby client writes them into Redis.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use redis::Pipeline;

use super::destination::{Answer, Destination, Weakness};
use super::json::{put_payload, put_text};
use super::message::{Arguments, Message};
use super::redis::{List, Redis};
use crate::error::Error;

/// The queue where nothing is said, as Sidekiq has it.
const QUEUE: &str = "default";

/// How times are written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Times {
    /// Seconds with a fraction, as Sidekiq before version 8 has them; version 8 reads them too.
    #[default]
    Seconds,
    /// Whole milliseconds, as from version 8 on.
    Milliseconds,
}

/// Sidekiq's queues in Redis: `SADD queues <queue>`, `LPUSH queue:<queue> <job>`.
///
/// | of the job | comes |
/// |---|---|
/// | `class` | what the mapping says, the job's name unless it says something |
/// | `queue` | what the mapping says, else the destination's, `default` unless said otherwise |
/// | `args` | the list in `{"args": […]}`, else the arguments as one object |
/// | `jid` | the last 24 digits of the delivery id |
/// | in the schedule | where [`Mapping::at`](super::Mapping::at) says when |
/// | `delivery_id` | the delivery id: for `posthaste.done`, or `posthaste.inbox` |
///
/// Sidekiq drops no duplicates: an effect that must happen once is recorded in `posthaste.inbox` by the worker. Accepted is what Redis has answered for, so that
/// its settings decide what a crash of it loses; see [`Weakness`]. Messages of one queue are pushed by one command, all or none.
///
/// ```
/// use posthaste::relay::{Relay, Sidekiq};
/// # fn main() -> Result<(), posthaste::Error> {
/// let sidekiq = Sidekiq::new("redis://127.0.0.1:6379/0")?.queue("mail");
/// let relay = Relay::to(sidekiq).batch(100);
/// # Ok(()) }
/// ```
pub struct Sidekiq {
    redis: Redis,
    queue: String,
    retry: String,
    times: Times,
}

impl Sidekiq {
    /// Into this Redis.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            redis: Redis::new(url)?,
            queue: QUEUE.into(),
            retry: "true".into(),
            times: Times::default(),
        })
    }

    /// Sidekiq's queue, where the mapping says none.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        Self { queue, ..self }
    }

    /// How often Sidekiq tries a job again that raised; as Sidekiq itself decides unless said otherwise.
    pub fn retry(self, times: u32) -> Self {
        let retry = times.to_string();
        Self { retry, ..self }
    }

    /// How times are written.
    pub fn times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    fn queue_of<'a>(&'a self, message: &'a Message) -> &'a str {
        message.queue.as_deref().unwrap_or(&self.queue)
    }
}

/// A job as Sidekiq's client writes it.
fn encode(message: &Message, queue: &str, retry: &str, times: Times, now: Timestamp) -> String {
    let mut job = String::with_capacity(256 + message.payload().len());
    let _ = write!(job, "{{\"retry\":{retry},\"queue\":");
    put_text(&mut job, queue);
    job.push_str(",\"class\":");
    put_text(&mut job, &message.kind);
    job.push_str(",\"args\":");
    match message.arguments() {
        Arguments::List(list) => job.push_str(list),
        Arguments::Payload(_) => {
            job.push('[');
            put_payload(&mut job, message);
            job.push(']');
        }
    }
    job.push_str(",\"jid\":\"");
    job.push_str(jid(message.id.simple().encode_lower(&mut [0; 32])));
    job.push_str("\",\"created_at\":");
    put_time(&mut job, message.job.enqueued_at, times);
    // Of one that is scheduled Sidekiq says so itself when its time has come.
    if message.at.is_none() {
        job.push_str(",\"enqueued_at\":");
        put_time(&mut job, now, times);
    }
    job.push_str(",\"delivery_id\":\"");
    job.push_str(message.id.hyphenated().encode_lower(&mut [0; 36]));
    job.push('"');
    for (name, value) in &message.headers {
        job.push(',');
        put_text(&mut job, name);
        job.push(':');
        put_text(&mut job, value);
    }
    job.push('}');
    job
}

fn put_time(job: &mut String, at: Timestamp, times: Times) {
    match times {
        Times::Seconds => put_seconds(job, at.as_microsecond()),
        Times::Milliseconds => {
            let _ = write!(job, "{}", at.as_millisecond());
        }
    }
}

/// As a floating-point number is printed, which would take longer than all else of a job.
fn put_seconds(job: &mut String, microseconds: i64) {
    let sign = if microseconds < 0 { "-" } else { "" };
    let microseconds = microseconds.unsigned_abs();
    let (whole, part) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let _ = write!(job, "{sign}{whole}.{part:06}");
    // With a fraction always: version 8 takes a whole number for milliseconds.
    while job.ends_with('0') && !job.ends_with(".0") {
        job.pop();
    }
}

/// Sidekiq's ids have 24 digits: those of the delivery id in which ids of one database, and nearly always of two, differ.
fn jid(id: &str) -> &str {
    &id[8..]
}

/// The list of what is scheduled, of whatever queue; its own list has 0.
const SCHEDULED: u8 = 1;

/// The commands for the jobs of one queue, with their times where they have some.
fn write(commands: &mut Pipeline, (queue, list): List<'_>, jobs: &[(Option<Timestamp>, String)]) {
    commands.cmd("SADD").arg("queues").arg(queue);
    match list {
        SCHEDULED => commands.cmd("ZADD").arg("schedule"),
        _ => commands.cmd("LPUSH").arg(format!("queue:{queue}")),
    };
    for (at, job) in jobs {
        if let Some(at) = at {
            commands.arg(score(*at));
        }
        commands.arg(job);
    }
}

/// A time as Sidekiq sorts by it.
fn score(at: Timestamp) -> String {
    (at.as_microsecond() as f64 / 1e6).to_string()
}

impl Destination for Sidekiq {
    fn label(&self) -> String {
        format!("sidekiq at {}", self.redis.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let now = Timestamp::now();
            let element = |message: &'a Message| {
                let queue = self.queue_of(message);
                let job = encode(message, queue, &self.retry, self.times, now);
                let list = message.at.map_or(0, |_| SCHEDULED);
                ((queue, list), (message.at, job))
            };
            self.redis.push(batch, element, write).await
        })
    }

    fn ahead(&self) -> Duration {
        Duration::MAX
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.redis.probe())
    }

    fn weaknesses(&self, _longest_outage: Duration) -> BoxFuture<'_, Result<Vec<Weakness>, Error>> {
        Box::pin(self.redis.weaknesses())
    }
}

#[cfg(test)]
mod tests {
    use super::{Times, encode, put_seconds, put_time, score};
    use crate::relay::golden::{Case, cases};
    use jiff::Timestamp;
    use serde_json::value::RawValue;
    use std::collections::HashMap;

    /// What this relay never writes: a number of retries may be 0 but not false.
    const NOT_OURS: [&str; 1] = ["no retries"];

    fn compare(case: &Case, times: Times) {
        let is_scheduled = case.input()["at"].is_number();
        let mut theirs = case.texts(if is_scheduled { "zadd" } else { "lpush" });
        let theirs_job = theirs.pop().expect("a job");
        let fields: HashMap<&str, &RawValue> = serde_json::from_str(&theirs_job).expect("JSON");
        let jid = fields["jid"].get().trim_matches('"');
        let id = format!("0190abcd{jid}");
        let payload = format!("{{\"args\":{}}}", fields["args"].get());
        let mut mapped = case.message(&id, &payload, |_| {});
        if let Some(trace) = fields.get("traceparent") {
            let trace = trace.get().trim_matches('"').to_owned();
            mapped.headers.push(("traceparent".into(), trace));
        }
        let queue = fields["queue"].get().trim_matches('"');
        match mapped.at {
            Some(at) => assert_eq!(theirs[1..], ["schedule".to_owned(), score(at)]),
            None => assert_eq!(theirs[1..], [format!("queue:{queue}")]),
        }
        let now = mapped.job.enqueued_at;
        let mine = encode(&mapped, queue, fields["retry"].get(), times, now);
        let delivery_id = format!(",\"delivery_id\":\"{}\"", mapped.id);
        assert!(mine.contains(&delivery_id), "{mine}");
        let mine = mine.replace(&delivery_id, "");
        let theirs = theirs_job.replace(",\"backtrace\":true,\"tags\":[\"a\",\"b\"]", "");
        match case.name() {
            // What else the client was told stands before the times there.
            "options" => {
                let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
                assert_eq!(read(&mine), read(&theirs));
            }
            name => assert_eq!(mine, theirs, "{name}"),
        }
    }

    #[test]
    fn a_job_has_the_bytes_that_sidekiqs_own_client_writes() {
        let six = include_str!("../../tests/relay/golden/sidekiq6.json");
        let eight = include_str!("../../tests/relay/golden/sidekiq8.json");
        for (capture, times) in [(six, Times::Seconds), (eight, Times::Milliseconds)] {
            let cases = cases(capture);
            let ours = cases.iter().filter(|case| !NOT_OURS.contains(&case.name()));
            let compared = ours.map(|case| compare(case, times)).count();
            assert_eq!(compared, 7);
        }
    }

    #[test]
    fn a_whole_second_is_not_taken_for_milliseconds() {
        let mut json = String::new();
        let at = Timestamp::from_second(1_700_000_000).expect("a time");
        put_time(&mut json, at, Times::Seconds);
        assert_eq!(json, "1700000000.0");
    }

    #[test]
    fn seconds_are_written_as_a_floating_point_number_is_printed() {
        for microseconds in [
            0,
            1_000_000,
            -1_500_000,
            1_700_000_000_000_000,
            1_700_000_000_100_000,
            1_700_000_000_123_456,
            1_799_999_999_999_999,
            4_102_444_800_000_001,
        ] {
            let mut json = String::new();
            put_seconds(&mut json, microseconds);
            assert_eq!(json, format!("{:?}", microseconds as f64 / 1e6));
        }
    }
}
