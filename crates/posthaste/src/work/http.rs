//! Handlers behind HTTP: one request per job.

mod answer;
mod signature;

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response, Url};

use crate::error::{Error, ErrorKind};
use crate::job::Job;
use crate::work::handler::{Context, HandlerResult, TryAgain};
use answer::{decide, retry_after};
pub use signature::Secret;
use signature::sign;

/// So much of an answer's body is read at most.
const READ: usize = 8 << 10;
/// An address that swallows packets is given up sooner than one that thinks.
const CONNECT: Duration = Duration::from_secs(10);

/// A handler that posts each job to an address.
///
/// The body is the job's arguments as JSON. Headers name the job: `posthaste-job-id`, `posthaste-job-name`, `posthaste-queue`, `posthaste-attempt` (0 at the
/// first), `posthaste-tag` (in names, queues and tags, bytes other than visible ASCII, and `%`, are percent-encoded). `webhook-id` and `idempotency-key`
/// carry the delivery id, the same at each attempt; with a [`Secret`], `webhook-signature` proves where the request comes from, as Standard Webhooks
/// describe it.
///
/// | answer | outcome |
/// |---|---|
/// | 2xx | done |
/// | 408, 425, 429, 5xx | tried again, when `Retry-After` says (a second to a day), else by the back-off |
/// | other 4xx | discarded |
/// | 3xx | tried again; redirects are not followed |
/// | none | tried again |
///
/// Which TLS there is, and which proxy, is the client's affair.
///
/// ```no_run
/// # fn example(pool: deadpool_postgres::Pool) -> Result<(), posthaste::Error> {
/// use posthaste::{Http, Worker};
/// let index = Http::new(reqwest::Client::builder(), "http://127.0.0.1:8080/index")?;
/// let worker = Worker::builder(pool)
///     .queue("default", 4)
///     .handler("index.*", index.handler());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Http {
    client: Client,
    url: Url,
    secrets: Arc<[Secret]>,
    time_limit: Duration,
}

impl Http {
    /// Posts to this address with a client of this kind. Built with TLS but without a provider (`rustls-no-provider`), reqwest panics here unless the program
    /// has installed one.
    pub fn new(client: ClientBuilder, url: &str) -> Result<Self, Error> {
        let url = address(url)?;
        let client = client
            .redirect(Policy::none())
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| ErrorKind::Config(said(&error)))?;
        Ok(Self {
            client,
            url,
            secrets: Arc::new([]),
            time_limit: Duration::from_secs(60),
        })
    }

    /// Signs each request with each of these: two, while one replaces the other.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            ..self
        }
    }

    /// How long connecting, asking and being answered may take together; a minute, unless said otherwise. Keep it below the queue's timeout.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// For [`WorkerBuilder::handler`](crate::WorkerBuilder::handler).
    pub fn handler(
        self,
    ) -> impl Fn(Context, Arc<Job>) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>>
    + Send
    + Sync
    + 'static {
        move |context, job| {
            let http = self.clone();
            Box::pin(async move { http.run(&context, &job).await })
        }
    }

    async fn run(&self, context: &Context, job: &Job) -> HandlerResult {
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers(context, job)?)
            .timeout(self.time_limit)
            .body(job.kwargs_json().to_owned());
        let answer = request
            .send()
            .await
            .map_err(|error| TryAgain::by_backoff(said(&error)))?;
        let status = answer.status().as_u16();
        let after = asked(answer.headers());
        Ok(decide(status, after, &start(answer).await)?)
    }

    fn headers(&self, context: &Context, job: &Job) -> Result<HeaderMap, TryAgain> {
        let id = context.delivery_id().to_string();
        let now = Timestamp::now().as_second();
        let mut all = vec![
            ("posthaste-job-id", job.id.to_string()),
            ("posthaste-job-name", encoded(&job.name)),
            ("posthaste-queue", encoded(&job.queue)),
            ("posthaste-attempt", job.attempt.to_string()),
            ("posthaste-tag", encoded(&job.tag)),
            ("webhook-timestamp", now.to_string()),
        ];
        if !self.secrets.is_empty() {
            let signature = sign(&self.secrets, &id, now, job.kwargs_json());
            all.push(("webhook-signature", signature));
        }
        all.extend([("idempotency-key", id.clone()), ("webhook-id", id)]);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in all {
            let value = HeaderValue::try_from(value)
                .map_err(|error| TryAgain::by_backoff(format!("the header {name}: {error}")))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(headers)
    }
}

/// The address may hold a password.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

fn address(url: &str) -> Result<Url, Error> {
    let url = Url::parse(url).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        // The address itself may hold a password: the error does not repeat it.
        .ok_or_else(|| Error::invalid("url", "must be http://host/path or https://host/path"))
}

/// What the server asked for, by its own clock where it told it.
fn asked(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    let told = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    retry_after(text(RETRY_AFTER)?, told.unwrap_or_else(SystemTime::now))
}

/// The first bytes of the body, or as many as came before it broke off.
async fn start(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < READ
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        body.extend_from_slice(&chunk[..chunk.len().min(READ - body.len())]);
    }
    body
}

/// What went wrong, without the address: it may hold a password.
fn said(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "cannot connect"
    } else {
        "the request failed"
    };
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(|cause| cause.source()) {
        cause = Some(deeper);
    }
    match cause {
        Some(cause) => format!("{what}: {cause}"),
        None => what.to_owned(),
    }
}

/// Text as a header can carry it.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_header_can_carry_are_encoded() {
        assert_eq!(encoded("mail.send-1/x"), "mail.send-1/x");
        assert_eq!(encoded("a b%\r\nü"), "a%20b%25%0D%0A%C3%BC");
    }

    #[test]
    fn only_an_address_over_http_is_taken_and_it_is_not_repeated() {
        for wrong in ["", "ftp://h/x", "h:1/geheim", "http://", "unix:/geheim"] {
            let error = address(wrong).unwrap_err();
            assert!(error.is_invalid() && !error.to_string().contains("geheim"));
        }
        assert!(address("http://u:geheim@h:1/p").is_ok());
    }
}
