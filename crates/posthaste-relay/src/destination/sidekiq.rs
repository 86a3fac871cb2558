//! Sidekiq: jobs as its Ruby client writes them into Redis.

mod options;
mod processes;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use posthaste::Error;
use redis::Pipeline;

use crate::destination::answer::Answer;
use crate::destination::contract::{Destination, UnsafeSetting};
use crate::destination::redis::{List, Redis};
use crate::message::json::{depth_beyond, put_text};
use crate::message::{Arguments, Message};
pub use options::ToggleOrCount;
use options::{Options, header_objection};

/// Sidekiq's default queue.
const DEFAULT_QUEUE: &str = "default";

/// The unit of times in jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum TimeUnit {
    /// Seconds with a fraction, as before version 8 of Sidekiq; version 8 reads them too.
    #[default]
    Seconds,
    /// Whole milliseconds, from version 8 on.
    Milliseconds,
}

/// Ruby reads JSON nested 100 deep; the job object and its argument list take two levels.
const MAX_DEPTH: usize = 98;

/// Sidekiq's queues in Redis: `SADD queues <queue>`, `LPUSH queue:<queue> <job>`.
///
/// | part of the job | source |
/// |---|---|
/// | `class` | the mapping; the job's name by default |
/// | `queue` | the mapping; else the destination's, `default` if unset |
/// | `args` | none without arguments; the list in `{"args": […]}`; else the payload alone |
/// | `jid` | the last 24 digits of the delivery id |
/// | schedule | [`Mapping::at`](crate::Mapping::at), if `retry` is configured |
/// | `delivery_id` | the delivery id: for `posthaste.confirm`, or `posthaste.inbox` |
/// | `retry`, `tags`, `backtrace`, `dead` | the options below; omitted if unset |
/// | other keys | the mapping's headers, as strings, and trace context |
///
/// Without [`retry`](Self::retry) the `sidekiq_options` of the class decide what happens to a job
/// that raised. Sidekiq can read them only once it has the class: it drops and logs a job whose
/// class its process does not know, or whose middleware raises. If workers may run an older
/// version, set `retry`, which applies to such jobs too. Sidekiq's poller gives a scheduled job
/// `retry: true` without asking its class: without `retry` a job for later waits in Postgres.
///
/// A payload that is not JSON is one string. A job without a class or a queue, with a header that
/// is a reserved key of Sidekiq, or with arguments nested too deep for Ruby is rejected
/// permanently.
///
/// Sidekiq drops no duplicates: an effect that must happen once is recorded in `posthaste.inbox` by
/// the worker. A message is accepted when Redis has answered, so its settings decide what its crash
/// loses; see [`UnsafeSetting`]. Messages of one queue are pushed by one command, all or none.
///
/// ```
/// use posthaste_relay::{Relay, Sidekiq};
/// # fn main() -> Result<(), posthaste::Error> {
/// let sidekiq = Sidekiq::new("redis://127.0.0.1:6379/0")?.queue("mail");
/// let relay = Relay::to(sidekiq).batch(100);
/// # Ok(()) }
/// ```
pub struct Sidekiq {
    redis: Redis,
    queue: String,
    options: Options,
    times: TimeUnit,
}

impl Sidekiq {
    /// Sends to this Redis.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            redis: Redis::new(url)?,
            queue: DEFAULT_QUEUE.into(),
            options: Options::default(),
            times: TimeUnit::default(),
        })
    }

    /// Sets Sidekiq's queue if the mapping sets none.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        let queue = queue.into();
        Self { queue, ..self }
    }

    /// Sets whether and how often Sidekiq retries a job that raised; by default its class decides.
    pub fn retry(mut self, times: impl Into<ToggleOrCount>) -> Self {
        self.options.retry = Some(times.into());
        self
    }

    /// Sets how much of the backtrace Sidekiq stores; by default the job's class decides.
    pub fn backtrace(mut self, lines: impl Into<ToggleOrCount>) -> Self {
        self.options.backtrace = Some(lines.into());
        self
    }

    /// Sets tags that its web interface shows.
    pub fn tags(mut self, tags: impl IntoIterator<Item = String>) -> Self {
        self.options.tags = tags.into_iter().collect();
        self
    }

    /// Sets whether Sidekiq stores a job as dead after its last attempt; by default its class
    /// decides.
    pub fn dead(mut self, is_kept: bool) -> Self {
        self.options.dead = Some(is_kept);
        self
    }

    /// Sets the unit of times.
    pub fn times(self, times: TimeUnit) -> Self {
        Self { times, ..self }
    }

    fn receiver_queue<'a>(&'a self, message: &'a Message) -> &'a str {
        message.queue.as_deref().unwrap_or(&self.queue)
    }
}

/// Encodes a job as Sidekiq's client writes it.
fn encode_job(
    message: &Message,
    queue: &str,
    options: &Options,
    times: TimeUnit,
    now: Timestamp,
) -> String {
    let mut job = String::with_capacity(256 + message.payload().len());
    job.push('{');
    if let Some(retry) = options.retry {
        let _ = write!(job, "\"retry\":{retry},");
    }
    job.push_str("\"queue\":");
    put_text(&mut job, queue);
    job.push_str(",\"class\":");
    put_text(&mut job, &message.kind);
    job.push_str(",\"args\":");
    match message.arguments() {
        Arguments::List(list) => job.push_str(list),
        Arguments::Payload(_) => {
            job.push('[');
            message.append_payload(&mut job);
            job.push(']');
        }
    }
    job.push_str(",\"jid\":\"");
    job.push_str(sidekiq_id(message.id.simple().encode_lower(&mut [0; 32])));
    job.push('"');
    options.put_options(&mut job);
    job.push_str(",\"created_at\":");
    put_time(&mut job, message.job.enqueued_at, times);
    // Sidekiq sets it itself when a scheduled job is due.
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

/// Returns why Sidekiq could not run a job, or would run another.
fn job_problem(message: &Message, queue: &str) -> Option<String> {
    if message.kind.trim().is_empty() || queue.trim().is_empty() {
        return Some("a Sidekiq job needs a class and a queue".into());
    }
    let depth = depth_beyond(message.payload(), MAX_DEPTH);
    if let Some(depth) = depth.filter(|_| message.is_json()) {
        return Some(format!(
            "its arguments are nested {depth} levels deep, but Ruby reads {MAX_DEPTH}"
        ));
    }
    message.header_problem(header_objection)
}

fn put_time(job: &mut String, at: Timestamp, times: TimeUnit) {
    match times {
        TimeUnit::Seconds => put_seconds(job, at.as_microsecond()),
        TimeUnit::Milliseconds => {
            let _ = write!(job, "{}", at.as_millisecond());
        }
    }
}

/// Writes seconds as a floating-point number is printed; formatting one is slower than the rest.
fn put_seconds(job: &mut String, microseconds: i64) {
    let sign = if microseconds < 0 { "-" } else { "" };
    let microseconds = microseconds.unsigned_abs();
    let (whole, part) = (microseconds / 1_000_000, microseconds % 1_000_000);
    let _ = write!(job, "{sign}{whole}.{part:06}");
    // A fraction is always written: version 8 reads a whole number as milliseconds.
    while job.ends_with('0') && !job.ends_with(".0") {
        job.pop();
    }
}

/// Returns the 24 digits of a Sidekiq id: those of the delivery id that differ within a database,
/// and almost always between two.
fn sidekiq_id(id: &str) -> &str {
    &id[8..]
}

/// The list of scheduled jobs, of any queue; the list of the queue itself is 0.
const SCHEDULED_LIST: u8 = 1;

/// Adds the commands for the jobs of one queue, with their times if they have them.
fn add_list_commands(
    commands: &mut Pipeline,
    (queue, list): List<'_>,
    jobs: &[(Option<Timestamp>, String)],
) {
    commands.cmd("SADD").arg("queues").arg(queue);
    match list {
        SCHEDULED_LIST => commands.cmd("ZADD").arg("schedule"),
        _ => commands.cmd("LPUSH").arg(format!("queue:{queue}")),
    };
    for (at, job) in jobs {
        if let Some(at) = at {
            commands.arg(scheduled_score(*at));
        }
        commands.arg(job);
    }
}

/// Returns a time as Sidekiq sorts by it.
fn scheduled_score(at: Timestamp) -> String {
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
                let queue = self.receiver_queue(message);
                if let Some(reason) = job_problem(message, queue) {
                    return Err(reason);
                }
                let job = encode_job(message, queue, &self.options, self.times, now);
                let list = message.at.map_or(0, |_| SCHEDULED_LIST);
                Ok(((queue, list), (message.at, job)))
            };
            self.redis.push(batch, element, add_list_commands).await
        })
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        header_objection(name)
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        job_problem(message, self.receiver_queue(message))
    }

    fn receiver_queue<'a>(&'a self, message: &'a Message) -> Option<&'a str> {
        Some(Self::receiver_queue(self, message))
    }

    fn queues_without_workers<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<String>, String>> {
        Box::pin(processes::queues_without_processes(&self.redis, queues))
    }

    /// Sidekiq's poller pushes scheduled jobs by the name of their class, with Sidekiq's defaults:
    /// without its own `retry` a job would be tried 25 times, whatever its class sets.
    fn max_lead_time(&self) -> Duration {
        match self.options.retry {
            Some(_) => Duration::MAX,
            None => Duration::ZERO,
        }
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.redis.probe())
    }

    fn misconfiguration(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(self.redis.misconfiguration())
    }

    fn unsafe_settings(
        &self,
        _longest_outage: Duration,
    ) -> BoxFuture<'_, Result<Vec<UnsafeSetting>, Error>> {
        Box::pin(self.redis.unsafe_settings())
    }
}
