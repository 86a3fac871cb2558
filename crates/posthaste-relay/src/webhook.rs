//! Webhooks: one signed request for each message.

mod headers;
mod reach;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use jiff::Timestamp;
use posthaste::consumer::Outcome;
use posthaste::http::{self, Secret, Turns};
use posthaste::{Error, RetryLater};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, ClientBuilder, StatusCode, Url};
use uuid::Uuid;

use super::destination::{Answer, Destination, NO_FILES};
use super::known::Known;
use super::message::Message;
use super::reason::{Failure, Reason};
use reach::Forbidden;
pub use reach::Reach;

/// A webhook: each message is posted to an address.
///
/// | of the job | comes |
/// |---|---|
/// | address | what the mapping says as `queue`, so that each job may have its own; else the destination's |
/// | body | the payload, byte by byte; `content-type` is `application/json`, `text/plain` or `application/octet-stream`, as the payload is, unless a header says otherwise |
/// | `webhook-id`, `idempotency-key` | the delivery id, the same at each attempt: receivers drop duplicates by it, for as long as they like |
/// | `webhook-timestamp`, `webhook-signature` | as Standard Webhooks describe them; the latter with a [`Secret`] |
/// | `posthaste-job-name`, `-queue`, `-attempt`, `-tag` | the job's, percent-encoded where needed |
/// | other headers | the mapping's, and `traceparent` |
///
/// | answer | outcome |
/// |---|---|
/// | 2xx | accepted |
/// | 408, 425, 429, 5xx | later, when `Retry-After` says (a second to a day), else by the back-off |
/// | other 4xx | rejected for good; later with [`again_on_client_errors`](Self::again_on_client_errors) |
/// | 3xx | later; redirects are not followed |
/// | none | the destination's own address: it is down, no attempt is counted; a message's own: later, and no other message waits for it |
/// | none, as this process may open no more files | again in a moment, no attempt is counted; fewer requests are under way at once from then on |
///
/// Whether its own address answers is asked from the first message on that goes there.
///
/// Only public addresses are connected to, see [`Reach`]. Of an answer, 8 KiB are read at most.
/// Which TLS there is, is the client's affair.
///
/// Requests of a batch are under way at once. The order of an ordered relay is kept with
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
    reach: Reach,
    secrets: Vec<Secret>,
    time_limit: Duration,
    requests: usize,
    turns: Turns,
    again: bool,
    known: Known,
    /// A message went to the destination's own address, or was to. Where each has its own, nobody
    /// needs this one.
    is_used: AtomicBool,
}

impl Webhook {
    /// Posts to this address, which must be a public one, with a client of this kind.
    pub fn new(client: ClientBuilder, url: &str) -> Result<Self, Error> {
        Self::within(client, url, Reach::public())
    }

    /// As [`new`](Self::new), to addresses of this reach.
    pub fn within(client: ClientBuilder, url: &str, reach: Reach) -> Result<Self, Error> {
        let url = http::address(url)?;
        let refused = |forbidden: Forbidden| Error::invalid("url", forbidden.to_string());
        reach.check(&url).map_err(refused)?;
        let webhook = Self::to_each(client, reach)?;
        let url = Some(url);
        Ok(Self { url, ..webhook })
    }

    /// Without an address of its own: the mapping says one for each message, as `queue`.
    pub fn to_each(client: ClientBuilder, reach: Reach) -> Result<Self, Error> {
        let requests = 100;
        Ok(Self {
            client: http::client(reach.bound(client))?,
            url: None,
            reach,
            secrets: Vec::new(),
            time_limit: Duration::from_secs(20),
            requests,
            turns: Turns::new(requests),
            again: false,
            known: Known::default(),
            is_used: AtomicBool::new(false),
        })
    }

    /// Signs each request with each of these: two, while one replaces the other.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            ..self
        }
    }

    /// How long connecting, asking and being answered may take together; 20 s unless said
    /// otherwise. Keep it below the relay's.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// How many requests are under way at once, over all batches; 100 unless said otherwise. Each
    /// has a connection, and its body in memory.
    pub fn requests(self, requests: usize) -> Self {
        let requests = requests.max(1);
        Self {
            requests,
            turns: Turns::new(requests),
            ..self
        }
    }

    /// Tries again too what is answered by any other 4xx, as for endpoints that are not there yet.
    pub fn again_on_client_errors(self) -> Self {
        let again = true;
        Self { again, ..self }
    }

    async fn send_one(&self, message: &Message) -> Answer {
        let Some(_turn) = self.turns.next().await else {
            return Answer::unavailable("the relay ends");
        };
        let answer = self.post(message).await;
        if !matches!(answer, Answer::Backpressure { .. }) {
            self.turns.found();
        } else if self.turns.lower() {
            let destination = self.label();
            tracing::warn!(destination, "{NO_FILES}: fewer requests are under way");
        }
        self.known.learn(message.id, &answer);
        answer
    }

    async fn post(&self, message: &Message) -> Answer {
        let (url, headers) = match (self.address(message), self.encode(message)) {
            (Ok(url), Ok(headers)) => (url, headers),
            (Err(reason), _) | (_, Err(reason)) => return Answer::rejected(reason),
        };
        let request = self
            .client
            .post(url)
            .headers(headers)
            .timeout(self.time_limit)
            .body(message.body().to_vec());
        match request.send().await {
            Ok(answer) => {
                let failure = of_status(answer.status());
                self.judge(http::outcome(answer).await, failure)
            }
            Err(error) => unavailable(&error, message.queue.is_some()),
        }
    }

    /// Where it goes. An address of the message's own is not trusted.
    fn address(&self, message: &Message) -> Result<Url, String> {
        match (&message.queue, &self.url) {
            (Some(own), _) => {
                let own = http::address(own).map_err(|error| error.to_string())?;
                self.reach.check(&own).map_err(|error| error.to_string())?;
                Ok(own)
            }
            (None, Some(url)) => {
                self.is_used.store(true, Ordering::Relaxed);
                Ok(url.clone())
            }
            (None, None) => Err("the mapping says no address".into()),
        }
    }

    fn encode(&self, message: &Message) -> Result<HeaderMap, String> {
        let mut headers = headers::encode(
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

    fn judge(&self, outcome: Result<Outcome, RetryLater>, failure: Failure) -> Answer {
        let of = |reason| Reason::of(failure, reason);
        match outcome {
            Ok(Outcome::Discard { reason }) if self.again => Answer::retry(of(reason)),
            Ok(Outcome::Discard { reason }) => Answer::rejected(of(reason)),
            Ok(_) => Answer::Accepted,
            Err(later) => Answer::Retry {
                reason: of(later.to_string()),
                after: later.wait(),
            },
        }
    }

    /// One after the other; nothing overtakes what was not answered.
    async fn in_order(&self, batch: &[Message]) -> Vec<Answer> {
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

/// What an answer that is no success says.
fn of_status(status: StatusCode) -> Failure {
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

/// Without an answer an address of a message's own is that message's trouble; the destination's is
/// everybody's. What this process lacks is neither's.
fn unavailable(error: &reqwest::Error, is_own: bool) -> Answer {
    if http::lacks_files(error) {
        return Answer::full(Reason::of(Failure::Other, NO_FILES));
    }
    let failure = match error.is_timeout() {
        true => Failure::Timeout,
        false => Failure::Connect,
    };
    let reason = Reason::of(failure, http::said(error));
    match is_own {
        true if Forbidden::is_cause_of(error) => Answer::rejected(http::said(error)),
        true => Answer::retry(reason),
        false => Answer::unavailable(reason),
    }
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
                1 => self.in_order(batch).await,
                _ => join_all(batch.iter().map(|message| self.send_one(message))).await,
            };
            self.known.forget(batch);
            answers
        })
    }

    fn rejects_header(&self, name: &str) -> Option<String> {
        headers::rejects(name)
    }

    fn rejects(&self, message: &Message) -> Option<String> {
        let refused = self.address(message).err();
        refused.or_else(|| self.encode(message).err())
    }

    fn recall(&self, id: Uuid) -> Option<Answer> {
        self.known.recall(id)
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let is_used = self.is_used.load(Ordering::Relaxed);
            let Some(url) = self.url.clone().filter(|_| is_used) else {
                return Ok(());
            };
            // Whatever the answer is, somebody is there.
            let answer = self.client.head(url).timeout(self.time_limit).send().await;
            match answer {
                // Nobody has asked, and it is no worse than it was known to be.
                Err(error) if http::lacks_files(&error) => Ok(()),
                answer => answer.map(drop).map_err(|error| http::said(&error)),
            }
        })
    }
}
