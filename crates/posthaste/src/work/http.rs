//! Handlers over HTTP: one request for each job.

mod gate;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::{Client, ClientBuilder, Url};

use crate::error::Error;
use crate::handler::{HandlerResult, RetryLater};
use crate::http::{self, Asked, Blame, Faults, NO_FILES, Secret, Turns, Verdict};
use crate::job::{Job, Outcome};
use crate::work::context::Context;
use gate::{EndpointGate, GatePass};

/// Delay before a job that could not be posted is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The longest time that a job waits for an endpoint that accepts no jobs, because it occupies a
/// slot of its queue.
const MAX_HOLD_TIME: Duration = Duration::from_secs(10);

/// A handler that posts each job to an address.
///
/// The body is the job's arguments as JSON. Headers describe the job: `posthaste-job-id`,
/// `posthaste-job-name`, `posthaste-queue`, `posthaste-attempt` (1 for the first), `posthaste-tag`
/// (in names, queues and tags, `%` and bytes other than visible ASCII are percent-encoded).
/// `webhook-id` and `idempotency-key` contain the delivery id, which is the same at each attempt.
/// With a [`Secret`], `webhook-signature` authenticates the request as specified by Standard
/// Webhooks. The trace context of a job ([`NewJob::trace`](crate::NewJob::trace)) is sent in
/// `traceparent` and `tracestate`.
///
/// | answer | outcome |
/// |---|---|
/// | 2xx | done |
/// | 408, 425, 429, 500, any 5xx with `Retry-After` | tried again, when `Retry-After` says (a second to a day), else by the back-off |
/// | 3xx, 401 to 405, 407, 415, 421, 426, 501 to 505, 511 | the endpoint accepts no jobs |
/// | other 4xx | discarded |
/// | no connection | the endpoint accepts no jobs |
/// | none | tried again; no attempt is counted if this process cannot open more files |
///
/// While the endpoint accepts no jobs, its jobs wait and no attempt is counted; one job at a time
/// tests whether it accepts jobs again. If it accepts other jobs and one job receives such an
/// answer twice, that job is the cause, and an attempt is counted.
///
/// TLS and proxies are configured on the client.
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
    faults: Arc<Faults>,
    gate: Arc<EndpointGate>,
}

impl Http {
    /// Posts to this address with this client. If it was built with TLS but without a provider
    /// (`rustls-no-provider`), reqwest panics here unless the program has installed one.
    pub fn new(client: ClientBuilder, url: &str) -> Result<Self, Error> {
        let url = http::address(url)?;
        let client = http::client(client)?;
        // The path and the query may contain secrets.
        let gate = EndpointGate::new(url.origin().ascii_serialization());
        Ok(Self {
            client,
            url,
            secrets: Arc::new([]),
            time_limit: Duration::from_secs(60),
            turns: Arc::new(Turns::new(usize::MAX)),
            faults: Arc::default(),
            gate: Arc::new(gate),
        })
    }

    /// Signs each request with each of these secrets: two, while one replaces the other.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            ..self
        }
    }

    /// Sets the timeout for connecting, sending and receiving the answer together; the default is a
    /// minute. Keep it below the queue's timeout.
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Returns the handler for [`WorkerBuilder::handler`](crate::WorkerBuilder::handler).
    pub fn handler<S: Send + Sync + 'static>(
        self,
    ) -> impl Fn(Context<S>, Arc<Job>) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>>
    + Send
    + Sync
    + 'static {
        move |context, job| {
            let http = self.clone();
            Box::pin(async move {
                let result = http.run(&context, &job).await;
                http.report(&context);
                result
            })
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
        let began = Instant::now();
        let held = self.time_limit / 2;
        let pass = tokio::select! {
            biased;
            pass = self.gate.pass(held.min(MAX_HOLD_TIME)) => pass,
            () = context.stopping() => None,
        };
        let Some(pass) = pass else {
            let reason = self.gate.reason().unwrap_or_default();
            return Err(RetryLater::without_attempt(RETRY_DELAY, reason).into());
        };
        let left = self.time_limit.saturating_sub(began.elapsed());
        let _turn = self.turns.next().await;
        let request = self
            .client
            .post(self.url.clone())
            .headers(headers)
            .timeout(left)
            .body(body.to_owned());
        let asked = self.faults.ask(job.id);
        match request.send().await {
            Ok(answer) => {
                self.turns.found();
                let verdict = http::verdict(answer).await;
                decide_result(verdict, &asked, pass)
            }
            Err(error) => Err(self.not_answered(&error, pass).into()),
        }
    }

    /// Reports to the worker's heartbeat whether the endpoint accepts jobs.
    fn report<S>(&self, context: &Context<S>) {
        let key = Arc::as_ptr(&self.gate) as usize;
        context
            .failing_endpoints()
            .set_reason(key, self.gate.summary());
    }

    /// Returns the retry of a request that got no answer.
    fn not_answered(&self, error: &reqwest::Error, pass: GatePass<'_>) -> RetryLater {
        let reason = http::describe(error);
        if http::lacks_files(error) {
            if self.turns.lower() {
                tracing::warn!("{NO_FILES}: fewer requests are sent at once");
            }
            return RetryLater::without_attempt(RETRY_DELAY, reason);
        }
        self.turns.found();
        if error.is_connect() {
            pass.record_failure(&reason);
            return RetryLater::without_attempt(RETRY_DELAY, reason);
        }
        // The request may have started, and the job may be the cause of the failure.
        RetryLater::by_backoff(reason)
    }
}

/// Decides by an answer how the job ends, and whether the endpoint accepts jobs.
fn decide_result(verdict: Verdict, asked: &Asked<'_>, pass: GatePass<'_>) -> HandlerResult {
    let Verdict::Endpoint { reason, .. } = verdict else {
        asked.taken();
        pass.record_success();
        return match verdict {
            Verdict::Refused { reason } => Ok(Outcome::Discard { reason }),
            Verdict::Later(later) => Err(later.into()),
            _ => Ok(Outcome::Done),
        };
    };
    match asked.failed() {
        Blame::Job => Err(RetryLater::by_backoff(reason).into()),
        Blame::Endpoint { again } => {
            // A single failure among successes may be caused by the job.
            if again || pass.is_trial() {
                pass.record_failure(&reason);
            }
            Err(RetryLater::without_attempt(RETRY_DELAY, reason).into())
        }
    }
}

/// Omits the address, which may contain a password.
impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}
