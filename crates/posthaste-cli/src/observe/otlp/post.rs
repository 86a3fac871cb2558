//! Posts to the collector on the runtime of the process: exporters run on separate threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// The timeout of a request to the collector.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum bytes of a response that are read; only errors are read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The connection to the collector, shared by spans and metrics.
#[derive(Clone, Debug)]
pub(super) struct CollectorClient {
    client: reqwest::Client,
    runtime: Handle,
    fails: Arc<AtomicBool>,
}

impl CollectorClient {
    pub(super) fn new(runtime: Handle) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().timeout(REQUEST_TIMEOUT);
        Ok(Self {
            client: client.build()?,
            runtime,
            fails: Arc::default(),
        })
    }

    /// Logs the first failure, and the first success after a failure.
    fn log_transition(&self, wrong: Option<String>) {
        let failed = self.fails.swap(wrong.is_some(), Ordering::Relaxed);
        match wrong {
            Some(error) if !failed => tracing::warn!(
                error,
                "the OpenTelemetry collector accepts no data; data of this time is lost"
            ),
            None if failed => tracing::info!("the OpenTelemetry collector accepts data again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(send(self.client.clone(), request));
        let answer = sent.await.map_err(HttpError::from).and_then(|sent| sent);
        self.log_transition(match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("HTTP status {}", answer.status().as_u16())),
            Err(error) => Some(error.to_string()),
        });
        answer
    }
}

async fn send(
    client: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let request = reqwest::Request::try_from(request)?;
    let answer = client.execute(request).await;
    let mut answer = answer.map_err(|error| posthaste::__private::http::describe(&error))?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE_BYTES {
            body.truncate(MAX_RESPONSE_BYTES);
            break;
        }
    }
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = answer.status();
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    Ok(response)
}
