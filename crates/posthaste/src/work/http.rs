//! Handlers over HTTP: one request per job.

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
use gate::{Gate, Pass};

/// A job that could not be posted comes back after this, after others.
const SOON: Duration = Duration::from_secs(1);
/// A job waits no longer than this for an endpoint that takes nothing: others of its queue need its
/// place.
const LONGEST_HOLD: Duration = Duration::from_secs(10);

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
/// | 408, 425, 429, 500, any 5xx with `Retry-After` | tried again, when `Retry-After` says (a second to a day), else by the back-off |
/// | 3xx, 401 to 405, 407, 415, 421, 426, 501 to 505, 511 | the endpoint takes nothing |
/// | other 4xx | discarded |
/// | no connection | the endpoint takes nothing |
/// | none | tried again; no attempt is counted if this process may open no more files |
///
/// While the endpoint takes nothing, its jobs wait and no attempt is counted; one job at a time
/// shows whether it accepts jobs again. Where others are taken and one job has such an answer
/// twice, it lies with the job, and an attempt is counted.
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
    faults: Arc<Faults>,
    gate: Arc<Gate>,
}

impl Http {
    /// Posts to this address with a client of this kind. Built with TLS but without a provider
    /// (`rustls-no-provider`), reqwest panics here unless the program has installed one.
    pub fn new(client: ClientBuilder, url: &str) -> Result<Self, Error> {
        let url = http::address(url)?;
        let client = http::client(client)?;
        // Paths and queries may be secrets.
        let gate = Gate::to(url.origin().ascii_serialization());
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

    /// Signs each request with each of these: two, while one replaces the other.
    pub fn secrets(self, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            secrets: secrets.into_iter().collect(),
            ..self
        }
    }

    /// How long connecting, asking and being answered may take together; a minute, unless set
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
            pass = self.gate.pass(held.min(LONGEST_HOLD)) => pass,
            () = context.stopping() => None,
        };
        let Some(pass) = pass else {
            let reason = self.gate.reason().unwrap_or_default();
            return Err(RetryLater::without_attempt(SOON, reason).into());
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
                settle(verdict, &asked, pass)
            }
            Err(error) => Err(self.not_answered(&error, pass).into()),
        }
    }

    /// Lets the worker's heartbeat report whether the endpoint takes jobs.
    fn report<S>(&self, context: &Context<S>) {
        let key = Arc::as_ptr(&self.gate) as usize;
        context.failing_endpoints().note(key, self.gate.summary());
    }

    /// What there was instead of an answer.
    fn not_answered(&self, error: &reqwest::Error, pass: Pass<'_>) -> RetryLater {
        let reason = http::describe(error);
        if http::lacks_files(error) {
            if self.turns.lower() {
                tracing::warn!("{NO_FILES}: fewer requests are sent at once");
            }
            return RetryLater::without_attempt(SOON, reason);
        }
        self.turns.found();
        if error.is_connect() {
            pass.failed(&reason);
            return RetryLater::without_attempt(SOON, reason);
        }
        // It may have begun, and the job may be why it did not end.
        RetryLater::by_backoff(reason)
    }
}

/// By an answer: what becomes of the job, and whether others are let through.
fn settle(verdict: Verdict, asked: &Asked<'_>, pass: Pass<'_>) -> HandlerResult {
    let Verdict::Endpoint { reason, .. } = verdict else {
        asked.taken();
        pass.succeeded();
        return match verdict {
            Verdict::Refused { reason } => Ok(Outcome::Discard { reason }),
            Verdict::Later(later) => Err(later.into()),
            _ => Ok(Outcome::Done),
        };
    };
    match asked.failed() {
        Blame::Job => Err(RetryLater::by_backoff(reason).into()),
        Blame::Endpoint { again } => {
            // One answer among good ones may lie with the job.
            if again || pass.is_trial() {
                pass.failed(&reason);
            }
            Err(RetryLater::without_attempt(SOON, reason).into())
        }
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
