//! Handlers behind HTTP: one request per job.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::{Client, ClientBuilder, Url};

use crate::error::Error;
use crate::handler::{HandlerResult, RetryLater};
use crate::http::{self, NO_FILES, Secret, Turns};
use crate::job::Job;
use crate::work::context::Context;

/// Others of this process's requests have ended by then.
const SOON: Duration = Duration::from_secs(1);

/// A handler that posts each job to an address.
///
/// The body is the job's arguments as JSON. Headers name the job: `posthaste-job-id`,
/// `posthaste-job-name`, `posthaste-queue`, `posthaste-attempt` (1 at the first), `posthaste-tag`
/// (in names, queues and tags, bytes other than visible ASCII, and `%`, are percent-encoded).
/// `webhook-id` and `idempotency-key` carry the delivery id, the same at each attempt; with a
/// [`Secret`], `webhook-signature` proves where the request comes from, as Standard Webhooks
/// describe it. A job with trace context ([`NewJob::trace`](crate::NewJob::trace)) has it in
/// `traceparent` and `tracestate`.
///
/// | answer | outcome |
/// |---|---|
/// | 2xx | done |
/// | 408, 425, 429, 5xx | tried again, when `Retry-After` says (a second to a day), else by the back-off |
/// | other 4xx | discarded |
/// | 3xx | tried again; redirects are not followed |
/// | none | tried again; no attempt is counted if this process may open no more files |
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
    turns: Arc<Turns>,
}

impl Http {
    /// Posts to this address with a client of this kind. Built with TLS but without a provider
    /// (`rustls-no-provider`), reqwest panics here unless the program has installed one.
    pub fn new(client: ClientBuilder, url: &str) -> Result<Self, Error> {
        let url = http::address(url)?;
        let client = http::client(client)?;
        Ok(Self {
            client,
            url,
            secrets: Arc::new([]),
            time_limit: Duration::from_secs(60),
            turns: Arc::new(Turns::new(usize::MAX)),
        })
    }

    /// Signs each request with each of these: two, while one replaces the other.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            ..self
        }
    }

    /// How long connecting, asking and being answered may take together; a minute, unless said
    /// otherwise. Keep it below the queue's timeout.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// For [`WorkerBuilder::handler`](crate::WorkerBuilder::handler).
    pub fn handler<S: Send + Sync + 'static>(
        self,
    ) -> impl Fn(Context<S>, Arc<Job>) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>>
    + Send
    + Sync
    + 'static {
        move |context, job| {
            let http = self.clone();
            Box::pin(async move { http.run(&context, &job).await })
        }
    }

    async fn run(&self, context: &Context<impl Sync>, job: &Job) -> HandlerResult {
        let (id, body) = (context.delivery_id(), job.kwargs_json());
        let headers = http::headers(job, id, body.as_bytes(), &self.secrets, Timestamp::now());
        let mut headers = headers.map_err(RetryLater::by_backoff)?;
        headers.insert("posthaste-job-id", HeaderValue::from(job.id.0));
        for (name, part) in job.trace_headers() {
            if let Some(Ok(part)) = part.map(HeaderValue::from_str) {
                headers.insert(name, part);
            }
        }
        let request = self
            .client
            .post(self.url.clone())
            .headers(headers)
            .timeout(self.time_limit)
            .body(body.to_owned());
        let _turn = self.turns.next().await;
        let answer = request.send().await;
        let answer = answer.map_err(|error| self.not_answered(&error))?;
        self.turns.found();
        Ok(http::outcome(answer).await?)
    }

    /// It lies with the server or with the job, unless this process lacks what it takes to ask.
    fn not_answered(&self, error: &reqwest::Error) -> RetryLater {
        let reason = http::said(error);
        if !http::lacks_files(error) {
            self.turns.found();
            return RetryLater::by_backoff(reason);
        }
        if self.turns.lower() {
            tracing::warn!("{NO_FILES}: fewer requests are under way");
        }
        RetryLater::without_attempt(SOON, reason)
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
