//! Sidekiq: jobs as its Ruby client writes them into Redis.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use uuid::Uuid;

use super::destination::{Answer, Destination, Weakness};
use super::message::{Arguments, Message};
use super::redis::{Redis, said};
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

    /// Indices of the messages of each queue, with their jobs.
    fn encode(
        &self,
        batch: &[Message],
        now: Timestamp,
    ) -> BTreeMap<String, (Vec<usize>, Vec<String>)> {
        let mut queues: BTreeMap<String, (Vec<usize>, Vec<String>)> = BTreeMap::new();
        for (index, message) in batch.iter().enumerate() {
            let queue = message.queue.as_deref().unwrap_or(&self.queue);
            let of_queue = queues.entry(queue.to_owned()).or_default();
            of_queue.0.push(index);
            of_queue
                .1
                .push(encode(message, queue, &self.retry, self.times, now));
        }
        queues
    }
}

/// A job as Sidekiq's client writes it.
fn encode(message: &Message, queue: &str, retry: &str, times: Times, now: Timestamp) -> String {
    let mut job = String::with_capacity(192 + message.payload().len());
    let _ = write!(
        job,
        "{{\"retry\":{retry},\"queue\":{},\"class\":{},\"args\":",
        text(queue),
        text(&message.kind)
    );
    match message.arguments() {
        Arguments::List(list) => job.push_str(list),
        Arguments::Payload(payload) => {
            let _ = match serde_json::from_str::<&serde_json::value::RawValue>(payload) {
                Ok(json) => write!(job, "[{json}]"),
                Err(_) => write!(job, "[{}]", text(payload)),
            };
        }
    }
    let _ = write!(job, ",\"jid\":\"{}\",\"created_at\":", jid(message.id));
    put_time(&mut job, message.job.enqueued_at, times);
    job.push_str(",\"enqueued_at\":");
    put_time(&mut job, now, times);
    let _ = write!(job, ",\"delivery_id\":\"{}\"", message.id);
    for (name, value) in &message.headers {
        let _ = write!(job, ",{}:{}", text(name), text(value));
    }
    job.push('}');
    job
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn put_time(job: &mut String, at: Timestamp, times: Times) {
    let _ = match times {
        Times::Seconds => write!(job, "{}", at.as_microsecond() as f64 / 1e6),
        Times::Milliseconds => write!(job, "{}", at.as_millisecond()),
    };
}

/// Sidekiq's ids have 24 digits: those of the delivery id in which ids of one database, and nearly always of two, differ.
fn jid(id: Uuid) -> String {
    id.simple().to_string().split_off(8)
}

impl Destination for Sidekiq {
    fn label(&self) -> String {
        format!("sidekiq at {}", self.redis.label())
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let now = Timestamp::now();
            let queues = self.encode(batch, now);
            let mut commands = redis::pipe();
            for (queue, (_, jobs)) in &queues {
                commands.cmd("SADD").arg("queues").arg(queue);
                commands
                    .cmd("LPUSH")
                    .arg(format!("queue:{queue}"))
                    .arg(jobs);
            }
            let answers = match self.redis.ask(&mut commands).await {
                Ok(answers) => answers,
                Err(reason) => return Answer::unanswered(reason).for_all(batch),
            };
            let mut all = Answer::Accepted.for_all(batch);
            for ((_, (indices, _)), answers) in queues.iter().zip(answers.chunks(2)) {
                let failed = answers.iter().find_map(|answer| answer.as_ref().err());
                if let Some(error) = failed {
                    let answer = Answer::unanswered(said(error));
                    indices
                        .iter()
                        .for_each(|index| all[*index] = answer.clone());
                }
            }
            all
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.redis.probe())
    }

    fn weaknesses(&self) -> BoxFuture<'_, Result<Vec<Weakness>, Error>> {
        Box::pin(self.redis.weaknesses())
    }
}
