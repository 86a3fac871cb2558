//! Sends messages without jobs by a route, as its relay would send them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use posthaste::{Job, JobId};
use tokio::time::timeout;
use uuid::Uuid;

use crate::destination::answer::Answer;
use crate::destination::contract::{DEFAULT_LONGEST_OUTAGE, Destination};
use crate::engine::health::{DestinationProblem, verify_destination};
use crate::engine::options::{Ack, DEFAULT_TIME_LIMIT};
use crate::message::mapping::Mapping;
use crate::message::outbox::OutboxJob;
use crate::message::schedule::message_if_due;
use crate::message::{Message, outbox};

/// A message that a program sends without a job.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The id by which receivers deduplicate.
    pub id: Uuid,
    /// The kind of work, as the name of a job.
    pub name: &'a str,
    /// The key by which receivers partition.
    pub key: Option<&'a str>,
    /// Headers that are sent with the body.
    pub headers: &'a [(String, String)],
    /// The body: any bytes.
    pub body: &'a [u8],
    /// When the event occurred.
    pub at: Timestamp,
}

/// Sends messages of a program by a [`Route`](crate::Route), without jobs: the same bytes that the
/// route's relay would send for a job with that body in the envelope of `posthaste.outbox`. The
/// program retries and schedules.
#[derive(Clone)]
pub struct Sender {
    pub(crate) destination: Arc<dyn Destination>,
    pub(crate) mapping: Mapping,
    pub(crate) queue: Arc<str>,
    pub(crate) batch: Option<usize>,
    pub(crate) time_limit: Duration,
    pub(crate) longest_outage: Duration,
    pub(crate) allowed: Vec<String>,
}

impl Sender {
    /// Creates a sender to this destination with the default mapping; `queue` is the queue of its
    /// relay.
    pub fn to(queue: &str, destination: impl Destination) -> Self {
        Self {
            destination: Arc::new(destination),
            mapping: Mapping::default(),
            queue: queue.into(),
            batch: None,
            time_limit: DEFAULT_TIME_LIMIT,
            longest_outage: DEFAULT_LONGEST_OUTAGE,
            allowed: Vec::new(),
        }
    }

    /// Sets how long to wait for an answer.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Returns the queue of the route, whose jobs its relay sends.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the destination's kind and address for people, without secrets.
    pub fn label(&self) -> String {
        self.destination.label()
    }

    /// Returns how many messages are sent together, if the route sets it.
    pub fn batch(&self) -> Option<usize> {
        self.batch
    }

    /// Returns whether a check can find that the destination accepts messages; else only a message
    /// can.
    pub fn can_ask(&self) -> bool {
        !self.destination.probes_with_message()
    }

    /// Makes the message as the relay would; `None` if it could not be sent now: as a job it would
    /// be rejected with the reason, or wait.
    pub fn message(&self, outgoing: &Outgoing<'_>) -> Option<Message> {
        let message = self.mapping.to_message(self.to_outbox_job(outgoing)).ok()?;
        message_if_due(message, self.destination.max_lead_time(), Timestamp::now()).ok()
    }

    fn to_outbox_job(&self, outgoing: &Outgoing<'_>) -> OutboxJob {
        let Outgoing { id, name, body, .. } = *outgoing;
        // Text in the database cannot contain a zero byte.
        let text = std::str::from_utf8(body).ok();
        let text = text.filter(|text| !text.contains('\0'));
        let mut job = match text {
            Some(text) => Job::new(JobId(0), name, outgoing.at, text),
            None => Job::new(JobId(0), name, outgoing.at, &outbox::encode_hex(body)),
        };
        job.queue = Arc::clone(&self.queue);
        job.ordering_key = outgoing.key.map(Into::into);
        let headers: BTreeMap<_, _> = outgoing.headers.iter().cloned().collect();
        OutboxJob {
            job: Arc::new(job),
            id,
            bytes: text.is_none().then(|| body.into()),
            reference: None,
            headers: headers.into_iter().collect(),
            is_call: false,
        }
    }

    /// Checks whether the destination answers and keeps the guarantees; the error is the reason if
    /// not.
    pub async fn check(&self) -> Result<(), String> {
        let destination = &*self.destination;
        let asked = verify_destination(
            destination,
            Ack::Accepted,
            self.longest_outage,
            &self.allowed,
        );
        asked.await.map_err(|problem| match problem {
            DestinationProblem::Down(reason) | DestinationProblem::Unsafe(reason) => reason,
        })
    }

    /// Sends messages within the route's time limit; returns an answer for each, in their order.
    pub async fn send(&self, messages: &[Message]) -> Vec<Answer> {
        if let Ok(answers) = timeout(self.time_limit, self.destination.send(messages)).await {
            if answers.len() == messages.len() {
                return answers;
            }
            let count = answers.len();
            let wrong = format!("{count} answers to {} messages", messages.len());
            return Answer::unavailable(wrong).repeat_for(messages);
        }
        let seconds = self.time_limit.as_secs_f64();
        let late = Answer::timed_out(format!("no answer within {seconds} s"));
        let known = messages
            .iter()
            .map(|one| self.destination.recall_answer(one.id));
        known
            .map(|one| one.unwrap_or_else(|| late.clone()))
            .collect()
    }
}

/// The address of the destination may be a secret.
impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("queue", &self.queue)
            .field("to", &self.label())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::{Outgoing, Sender};
    use crate::destination::lines::{Lines, encode_line};
    use crate::message::outbox::unwrap_envelope;
    use crate::message::tests::{ID, job};

    /// Returns the line that is sent for a job with the message in its envelope.
    fn by_a_job(sender: &Sender, outgoing: &Outgoing<'_>) -> Vec<u8> {
        let (field, text) = match std::str::from_utf8(outgoing.body) {
            Ok(text) => ("text", text.to_owned()),
            Err(_) => ("hex", super::outbox::encode_hex(outgoing.body)),
        };
        let headers: serde_json::Map<_, _> =
            outgoing.headers.iter().cloned().map(to_json).collect();
        let row = json!({
            "id": outgoing.id.to_string(), field: text, "key": outgoing.key,
            "headers": headers, "at": outgoing.at.to_string(),
        });
        let kwargs = format!("{{\"posthaste.outbox\": {row}}}");
        let mut job = (*job(outgoing.name, &kwargs)).clone();
        job.queue = "q".into();
        job.tag = "".into();
        let unwrapped = unwrap_envelope(job.into(), ID).expect("a row");
        encode_line(&sender.mapping.to_message(unwrapped).expect("a message")).expect("a line")
    }

    fn to_json((name, value): (String, String)) -> (String, serde_json::Value) {
        (name, value.into())
    }

    #[test]
    fn job_less_messages_match_the_envelope_of_a_job() {
        let sender = Sender::to("q", Lines::new(tokio::io::sink()));
        let headers = [("b", "2"), ("a", "ü")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let bodies: [&[u8]; 4] = [b"{\"a\": 1}", b"a \"text\"", &[0, 255], b""];
        for body in bodies {
            let outgoing = Outgoing {
                id: Uuid::from_u128(7),
                name: "order.paid",
                key: Some("k"),
                headers: &headers,
                body,
                at: "2026-11-27T10:00:00.25Z".parse().expect("a time"),
            };
            let sent = sender.message(&outgoing).expect("a message");
            let sent = encode_line(&sent).expect("a line");
            assert_eq!(sent, by_a_job(&sender, &outgoing), "{body:?}");
        }
    }
}
