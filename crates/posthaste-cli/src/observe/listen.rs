//! `--listen`: metrics and health over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;

use super::collector::Collector;
use super::exposition::{self, Metric};
use super::otlp;
use super::recorder::{self, Recorder};
use crate::failure;
use crate::serve::serve;
use crate::terminal::Terminal;

/// The content type that Prometheus expects.
const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A process is not ready after the database has not answered, or the process has reported no
/// status, for this long.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// Time between two status reports of a process.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// The option for the server of metrics and health.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ListenOptions {
    /// Serve /metrics for Prometheus, and /live and /ready, at this address, such as 127.0.0.1:9187
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
}

/// The HTTP server and the status of the process.
#[derive(Clone)]
pub(crate) struct MetricsServer(Arc<MetricsServerState>);

struct MetricsServerState {
    recorder: Recorder,
    collector: Option<Collector>,
    health: Mutex<Health>,
    failures: AtomicU64,
}

/// The last reported status of a process.
#[derive(Clone)]
struct Health {
    at: Instant,
    unanswered_for: Duration,
    /// Why the worker was refused.
    refused: Option<String>,
}

impl Health {
    /// Returns why the process is not ready, `None` if it is ready. A process that stopped
    /// reporting counts as stuck.
    fn not_ready_reason(self) -> Option<String> {
        if self.at.elapsed() > MAX_SILENCE {
            return Some("the process does not respond".to_owned());
        }
        let silent =
            || (self.unanswered_for > MAX_SILENCE).then_some("the database does not answer");
        self.refused.or_else(|| silent().map(str::to_owned))
    }
}

impl ListenOptions {
    pub(crate) fn at(address: SocketAddr) -> Self {
        let listen = Some(address);
        Self { listen }
    }

    /// Serves the metrics of the process, and with a collector those of the database, until the
    /// process ends.
    pub(crate) async fn serve(
        self,
        collector: Option<Collector>,
        terminal: &Terminal,
    ) -> anyhow::Result<Option<MetricsServer>> {
        if let Some(collector) = &collector {
            otlp::observe(collector.clone());
        }
        let Some(address) = self.listen else {
            recorder::install_for_a_collector_alone()?;
            return Ok(None);
        };
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| {
            anyhow::anyhow!(
                "cannot listen at {address}: {}",
                failure::io_error_text(&error)
            )
        })?;
        let address = listener.local_addr().context("listening")?;
        let health = Health {
            at: Instant::now(),
            unanswered_for: Duration::ZERO,
            refused: None,
        };
        let served = MetricsServer(Arc::new(MetricsServerState {
            recorder: Recorder::install()?,
            collector,
            health: Mutex::new(health),
            failures: AtomicU64::new(0),
        }));
        let mut router = Router::new()
            .route("/metrics", get(metrics))
            .route("/live", get(async || "alive\n"))
            .route("/ready", get(ready))
            .with_state(served.clone());
        if address.ip().is_loopback() {
            router = router.layer(from_fn(refuse_rebound_names));
        }
        tokio::spawn(serve(listener, router, None));
        let metrics = format!("http://{address}/metrics");
        let text = format!("metrics at {metrics}");
        terminal.report_event("listening", &text, &json!({ "url": metrics }))?;
        Ok(Some(served))
    }
}

impl MetricsServer {
    /// Reports the status of the process. It must be called repeatedly.
    pub(crate) fn report_status(&self, unanswered_for: Duration, refused: Option<String>) {
        let mut health = self.0.health.lock();
        *health = Health {
            at: Instant::now(),
            unanswered_for,
            refused,
        };
        self.0.recorder.aggregate();
    }

    /// Reports healthy periodically, for a process that only waits for others.
    pub(crate) async fn report_healthy_forever(&self) {
        loop {
            self.report_status(Duration::ZERO, None);
            tokio::time::sleep(REPORT_INTERVAL).await;
        }
    }

    /// Returns the interval at which a process reports its status.
    pub(crate) fn report_interval() -> tokio::time::Interval {
        tokio::time::interval(REPORT_INTERVAL)
    }

    fn health(&self) -> Health {
        self.0.health.lock().clone()
    }

    async fn database_metrics_text(&self, collector: &Collector) -> String {
        let (text, is_up) = match collector.text().await {
            Ok(text) => {
                self.0.failures.store(0, Ordering::Relaxed);
                (text, true)
            }
            Err(error) => {
                // Logged for the first failure, not for every scrape.
                if self.0.failures.fetch_add(1, Ordering::Relaxed) == 0 {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "the database could not be read");
                }
                (String::new(), false)
            }
        };
        text + &exposition::prometheus_text(&[Metric::database_up(is_up)])
    }
}

/// Rejects DNS rebinding: a web page in a browser on this machine could reach this server by a
/// foreign name that resolves to it, and read the answer. The console rejects such names too.
async fn refuse_rebound_names(request: Request, next: Next) -> Response {
    match posthaste_console::is_loopback_host(request.headers()) {
        true => next.run(request).await,
        false => (
            StatusCode::FORBIDDEN,
            "this address answers to loopback names only, such as 127.0.0.1 or localhost\n",
        )
            .into_response(),
    }
}

async fn metrics(State(served): State<MetricsServer>) -> Response {
    let mut text = served.0.recorder.text();
    if let Some(collector) = &served.0.collector {
        text.push_str(&served.database_metrics_text(collector).await);
    }
    ([(header::CONTENT_TYPE, PROMETHEUS_CONTENT_TYPE)], text).into_response()
}

async fn ready(State(served): State<MetricsServer>) -> (StatusCode, String) {
    if let Some(trouble) = served.health().not_ready_reason() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n"));
    }
    match &served.0.collector {
        Some(collector) if collector.text().await.is_err() => {
            let trouble = "the database could not be read\n".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, trouble)
        }
        _ => (StatusCode::OK, "ready\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_without_a_database_are_not_ready() {
        let health = |ago: u64, owes: u64| Health {
            at: Instant::now()
                .checked_sub(Duration::from_secs(ago))
                .unwrap_or_else(Instant::now),
            unanswered_for: Duration::from_secs(owes),
            refused: None,
        };
        let trouble = |ago, owes| health(ago, owes).not_ready_reason();
        assert_eq!(trouble(0, 9), None);
        let silent = Some("the database does not answer".to_owned());
        assert_eq!(trouble(0, 11), silent);
        let still = Some("the process does not respond".to_owned());
        assert_eq!(trouble(11, 0), still);
        let refused = Some("another site owns this store".to_owned());
        let waiting = Health {
            refused: refused.clone(),
            ..health(0, 0)
        };
        assert_eq!(waiting.not_ready_reason(), refused);
    }
}
