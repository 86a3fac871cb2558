//! Webhooks: one signed request for each message.

mod address_policy;
mod headers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use jiff::Timestamp;
use posthaste::__private::http::{self, Asked, Blame, Faults, KeepAlive, Turns, Verdict};
use posthaste::{Error, Secret};
use reqwest::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, ClientBuilder, StatusCode, Url};
use uuid::Uuid;

use crate::destination::answer::{Answer, FILE_LIMIT_REACHED};
use crate::destination::contract::Destination;
use crate::destination::partial_answers::PartialAnswers;
use crate::destination::reason::{Failure, Reason};
use crate::message::Message;
pub use address_policy::AddressPolicy;
use address_policy::Forbidden;

/// The most connections that stay open to addresses that messages set, regardless of the number of
/// file descriptors.
const MAX_IDLE_CONNECTIONS: usize = 4_000;

/// A webhook: each message is posted to a URL.
///
/// | part of the request | source |
/// |---|---|
/// | URL | the mapping's `queue`, so that each job may set its own; else the destination's |
/// | body | the payload, byte by byte; `content-type` is `application/json`, `text/plain` or `application/octet-stream`, as the payload is, unless a header says otherwise |
/// | `webhook-id`, `idempotency-key` | the delivery id, the same at each attempt: receivers drop duplicates by it, for as long as they like |
/// | `webhook-timestamp`, `webhook-signature` | as Standard Webhooks describe them; the latter with a [`Secret`] |
/// | `posthaste-job-name`, `-queue`, `-attempt`, `-tag` | the job's, percent-encoded if needed |
/// | other headers | the mapping's, and `traceparent` |
///
/// | answer | outcome |
/// |---|---|
/// | 2xx | accepted |
/// | 408, 425, 429, 500, 5xx with `Retry-After` | retried after that (1 s to a day) or backoff |
/// | 3xx, 401 to 405, 407, 415, 421, 426, 501 to 505, 511 | the destination's own address: it takes nothing for now, no attempt is counted; a message's own: 4xx as other 4xx, else later |
/// | other 4xx | rejected; retried with [`again_on_client_errors`](Self::again_on_client_errors) |
/// | none | the destination's own address: it is down, no attempt is counted; a message's own: later, and no other message waits for it |
/// | none, no file descriptor left | retried soon, no attempt is counted; fewer requests at once |
///
/// While the destination's own address accepts nothing, one message at a time probes it. If others
/// are accepted and one message fails twice, that message is the cause, and an attempt is counted.
/// After a message without an answer a HEAD request checks whether a server answers; a receiver
/// need not support it.
///
/// Only public addresses are connected to, see [`AddressPolicy`]. At most 8 KiB of an answer are
/// read. The client decides which TLS it supports.
///
/// Requests of a batch are sent concurrently. An ordered relay keeps its order with
/// [`requests(1)`](Self::requests).
///
/// ```no_run
/// use posthaste_relay::{Relay, Webhook};
/// # fn main() -> Result<(), posthaste::Error> {
/// let webhook = Webhook::new(reqwest::Client::builder(), "https://example.com/hook")?
///     .secrets(["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD".parse()?])
///     .requests(1_000);
/// let relay = Relay::to(webhook).batch(50).concurrency(20);
/// # Ok(()) }
/// ```
pub struct Webhook {
    client: Client,
    url: Option<Url>,
    address_policy: AddressPolicy,
    secrets: Vec<Secret>,
    time_limit: Duration,
    requests: usize,
    turns: Turns,
    again: bool,
    known: PartialAnswers,
    /// Failures of requests to the destination's own address.
    faults: Faults,
    /// Connections to addresses that messages set: there may be any number of hosts.
    keep_alive: KeepAlive,
    /// Whether any message used the destination's own address. If each message sets its own, this
    /// one need not be probed.
    is_used: AtomicBool,
}

impl Webhook {
    /// Posts to this URL, which must be public, with a client of this configuration.
    pub fn new(client: ClientBuilder, url: &str) -> Result<Self, Error> {
        Self::with_address_policy(client, url, AddressPolicy::public())
    }

    /// As [`new`](Self::new), for addresses that this policy allows.
    pub fn with_address_policy(
        client: ClientBuilder,
        url: &str,
        address_policy: AddressPolicy,
    ) -> Result<Self, Error> {
        let url = http::address(url)?;
        let refused = |forbidden: Forbidden| Error::invalid("url", forbidden.to_string());
        address_policy.check_url(&url).map_err(refused)?;
        let webhook = Self::to_each(client, address_policy)?;
        let url = Some(url);
        Ok(Self { url, ..webhook })
    }

    /// Creates a webhook without an address: the mapping sets one for each message, as `queue`.
    pub fn to_each(client: ClientBuilder, address_policy: AddressPolicy) -> Result<Self, Error> {
        let requests = 100;
        Ok(Self {
            client: http::client(address_policy.restrict_client(client))?,
            url: None,
            address_policy,
            secrets: Vec::new(),
            time_limit: Duration::from_secs(20),
            requests,
            turns: Turns::new(requests),
            again: false,
            known: PartialAnswers::default(),
            faults: Faults::default(),
            keep_alive: KeepAlive::new(http::quarter_of_descriptors().min(MAX_IDLE_CONNECTIONS)),
            is_used: AtomicBool::new(false),
        })
    }

    /// Sets the secrets that sign each request: two while one replaces the other.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            ..self
        }
    }

    /// Sets how long a request may take from connecting to the end of its answer; 20 s by default.
    /// Keep it shorter than the relay's.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets how many requests are in flight at once, over all batches; 100 by default. Each has a
    /// connection, and its body in memory.
    pub fn requests(self, requests: usize) -> Self {
        let requests = requests.max(1);
        Self {
            requests,
            turns: Turns::new(requests),
            ..self
        }
    }

    /// Also retries messages answered by any other 4xx, for endpoints that do not exist yet.
    pub fn again_on_client_errors(self) -> Self {
        let again = true;
        Self { again, ..self }
    }

    async fn send_one(&self, message: &Message) -> Answer {
        let Some(_turn) = self.turns.next().await else {
            return Answer::unavailable("the relay ends");
        };
        let answer = match self.post(message).await {
            Ok(answer) => {
                self.turns.found();
                answer
            }
            Err(FileLimitReached) => {
                if self.turns.lower() {
                    let destination = self.label();
                    tracing::warn!(
                        destination,
                        "{FILE_LIMIT_REACHED}: fewer requests are sent at once"
                    );
                }
                Answer::backpressure(Reason::new(Failure::Other, FILE_LIMIT_REACHED))
            }
        };
        self.known.record_answer(message.id, &answer);
        answer
    }

    async fn post(&self, message: &Message) -> Result<Answer, FileLimitReached> {
        let (url, mut headers) = match (self.target_url(message), self.encode(message)) {
            (Ok(url), Ok(headers)) => (url, headers),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Answer::rejected(reason)),
        };
        let is_own = message.queue.is_some();
        let host = is_own.then(|| url.origin().ascii_serialization());
        let keep_alive = host.map(|host| self.keep_alive.ask(&host, Instant::now()));
        if matches!(keep_alive, Some(None)) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let request = self
            .client
            .post(url)
            .headers(headers)
            .timeout(self.time_limit)
            .body(message.body().to_vec());
        let asked = (!is_own).then(|| self.faults.ask(message.job.id));
        let answer = match request.send().await {
            Ok(answer) => {
                let failure = failure_for_status(answer.status());
                let verdict = http::verdict(answer).await;
                match asked {
                    Some(asked) => self.classify_own_address(verdict, failure, &asked),
                    None => self.answer_from_verdict(verdict.blaming_the_job(), failure),
                }
            }
            Err(error) if http::lacks_files(&error) => return Err(FileLimitReached),
            Err(error) => match asked {
                Some(asked) => classify_missing_answer(&error, &asked),
                None => classify_missing_answer_alone(&error),
            },
        };
        drop(keep_alive);
        Ok(answer)
    }

    /// Returns the URL of a message. An address that the message sets is not trusted.
    fn target_url(&self, message: &Message) -> Result<Url, String> {
        match (&message.queue, &self.url) {
            (Some(own), _) => {
                let own = http::address(own).map_err(|error| error.to_string())?;
                self.address_policy
                    .check_url(&own)
                    .map_err(|error| error.to_string())?;
                Ok(own)
            }
            (None, Some(url)) => {
                self.is_used.store(true, Ordering::Relaxed);
                Ok(url.clone())
            }
            (None, None) => Err("the mapping yields no address".into()),
        }
    }

    fn encode(&self, message: &Message) -> Result<HeaderMap, String> {
        let mut headers = headers::encode_headers(
            &message.job,
            message.id,
            message.body(),
            &message.headers,
            &self.secrets,
            Timestamp::now(),
        )?;
        let is_given =
            |(name, _): &(String, String)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str());
        if !message.headers.iter().any(is_given) {
            let content_type = HeaderValue::from_static(message.content_type());
            headers.insert(CONTENT_TYPE, content_type);
        }
        Ok(headers)
    }

    /// Classifies an answer of the destination's own address.
    fn classify_own_address(
        &self,
        verdict: Verdict,
        failure: Failure,
        asked: &Asked<'_>,
    ) -> Answer {
        let Verdict::Endpoint { reason, .. } = verdict else {
            asked.taken();
            return self.answer_from_verdict(verdict, failure);
        };
        let reason = Reason::new(failure, reason);
        match asked.failed() {
            Blame::Job => Answer::retry(reason),
            Blame::Endpoint { .. } => Answer::backpressure(reason),
        }
    }

    fn answer_from_verdict(&self, verdict: Verdict, failure: Failure) -> Answer {
        let of = |reason| Reason::new(failure, reason);
        match verdict {
            Verdict::Done => Answer::Accepted,
            Verdict::Refused { reason } if self.again => Answer::retry(of(reason)),
            Verdict::Refused { reason } => Answer::rejected(of(reason)),
            Verdict::Endpoint { reason, .. } => Answer::backpressure(of(reason)),
            Verdict::Later(later) => Answer::Retry {
                reason: of(later.to_string()),
                after: later.wait(),
            },
        }
    }

    /// Sends messages one after the other; none overtakes an unanswered one.
    async fn send_in_order(&self, batch: &[Message]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for message in batch {
            let answer = self.send_one(message).await;
            answers.push(answer.clone());
            if matches!(
                answer,
                Answer::Unavailable { .. } | Answer::Backpressure { .. }
            ) {
                answers.resize(batch.len(), answer);
                break;
            }
        }
        answers
    }
}

/// Returns the kind of failure for a status that is not a success.
fn failure_for_status(status: StatusCode) -> Failure {
    match status.as_u16() {
        401 | 403 | 407 => Failure::Auth,
        404 | 405 | 410 => Failure::NoRoute,
        408 | 504 => Failure::Timeout,
        413 | 414 | 431 => Failure::TooLarge,
        429 | 503 | 507 => Failure::Full,
        400..=499 => Failure::Refused,
        _ => Failure::Error,
    }
}

/// This process may open no more files; the receiver is not the cause.
struct FileLimitReached;

/// Classifies a missing answer of the destination's own address: it is down, unless it answers all
/// other messages.
fn classify_missing_answer(error: &reqwest::Error, asked: &Asked<'_>) -> Answer {
    let reason = missing_answer_reason(error);
    match !error.is_connect() && asked.failed() == Blame::Job {
        true => Answer::retry(reason),
        false => Answer::unavailable(reason),
    }
}

/// Classifies a missing answer of an address that the message sets: it affects this message only.
fn classify_missing_answer_alone(error: &reqwest::Error) -> Answer {
    match Forbidden::is_cause_of(error) {
        true => Answer::rejected(http::describe(error)),
        false => Answer::retry(missing_answer_reason(error)),
    }
}

fn missing_answer_reason(error: &reqwest::Error) -> Reason {
    let failure = match error.is_timeout() {
        true => Failure::Timeout,
        false => Failure::Connect,
    };
    Reason::new(failure, http::describe(error))
}

impl Destination for Webhook {
    fn label(&self) -> String {
        // Paths and queries of webhooks are often secrets.
        match &self.url {
            Some(url) => format!("webhook at {}", url.origin().ascii_serialization()),
            None => "webhooks".into(),
        }
    }

    fn send<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Answer>> {
        Box::pin(async move {
            let answers = match self.requests {
                1 => self.send_in_order(batch).await,
                _ => join_all(batch.iter().map(|message| self.send_one(message))).await,
            };
            self.known.remove_answers(batch);
            answers
        })
    }

    fn header_objection(&self, name: &str) -> Option<String> {
        headers::header_objection(name)
    }

    fn rejection_reason(&self, message: &Message) -> Option<String> {
        let refused = self.target_url(message).err();
        refused.or_else(|| self.encode(message).err())
    }

    fn recall_answer(&self, id: Uuid) -> Option<Answer> {
        self.known.take_answer(id)
    }

    /// A receiver need not answer a HEAD request.
    fn probes_with_message(&self) -> bool {
        true
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let is_used = self.is_used.load(Ordering::Relaxed);
            let Some(url) = self.url.clone().filter(|_| is_used) else {
                return Ok(());
            };
            // Any answer shows that a server is there.
            let answer = self.client.head(url).timeout(self.time_limit).send().await;
            match answer {
                // No request was sent, and nothing new is known.
                Err(error) if http::lacks_files(&error) => Ok(()),
                answer => answer.map(drop).map_err(|error| http::describe(&error)),
            }
        })
    }
}
